use serde::Deserialize;

use super::Text;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionCount {
    pub keys: Vec<Text>,
    pub count: u64,
    pub first_at: Text,
    pub last_at: String,
    pub sample_execution_id: Text,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
}

impl ExecutionCount {
    pub const FIELDS: &str = "keys count firstAt lastAt sampleExecutionId p50Ms p95Ms";
}
