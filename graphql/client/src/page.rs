use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Client, failure::Failure, remove_nulls, types::ExecutionStatus};

/// A request for one page of a list. `kind` is the field of the API that lists the objects.
pub struct PageRequest {
    pub kind: &'static str,
    pub filter: Value,
    pub first: i32,
    pub after: Option<String>,
    pub fields: String,
}

impl PageRequest {
    /// Sends several requests if the page exceeds the size of one response. Returns
    /// the cursor of the next page, if there is a next page.
    pub async fn load(self, client: &Client) -> Result<(Vec<Value>, Option<String>), Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Connection {
            nodes: Vec<Value>,
            page_info: PageInfo,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PageInfo {
            has_next_page: bool,
            end_cursor: Option<String>,
        }
        let filter_argument = match self.kind {
            "requests" => "filter: RequestFilter",
            "plans" => "filter: PlanFilter",
            "audit" => "filter: AuditFilter",
            _ => "filter: ExecutionFilter",
        };
        let (first, mut after) = (self.first, self.after);
        let filter = remove_nulls(self.filter);
        let fields = format!("nodes {{ {} }} pageInfo {{ hasNextPage endCursor }}", self.fields);
        let mut nodes: Vec<Value> = Vec::new();
        let mut piece = first;
        loop {
            let left = first.saturating_sub(i32::try_from(nodes.len()).unwrap_or(i32::MAX));
            let count = piece.min(left);
            let arguments = [
                (filter_argument, filter.clone()),
                ("first: Int", json!(count)),
                ("after: String", json!(after)),
            ];
            let found: Connection = match client.query(self.kind, &arguments, &fields).await {
                Err(failure) if failure.code == "LIMIT_EXCEEDED" && count > 1 => {
                    piece = count / 2;
                    continue;
                }
                found => found?,
            };
            nodes.extend(found.nodes);
            after = found.page_info.end_cursor.filter(|_| found.page_info.has_next_page);
            if after.is_none() || usize::try_from(first).is_ok_and(|first| nodes.len() >= first) {
                return Ok((nodes, after));
            }
        }
    }
}

pub(crate) async fn newest_executions(
    client: &Client,
    request: &str,
    max: i32,
) -> Result<Vec<Value>, Failure> {
    let filter = json!({ "requestId": request });
    let fields = ExecutionStatus::fields();
    let page = PageRequest { kind: "executions", filter, first: max, after: None, fields };
    let (mut found, _) = page.load(client).await?;
    found.reverse();
    Ok(found)
}
