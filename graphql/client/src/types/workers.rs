use serde::Deserialize;

use super::Text;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    pub worker_id: Text,
    pub node: Text,
    pub lease_until: String,
    pub executions: u64,
}

impl Worker {
    pub const FIELDS: &str = "workerId node leaseUntil executions";
}
