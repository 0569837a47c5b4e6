//! Finds due executions for claims, and the executions of a token for its quotas.

use mongodb::bson::{Bson, Document as Row, doc};
use shared::{
    clock::Timestamp,
    limits,
    store::{
        ExecutionHead, HeadQuery, Log as _, StoreError,
        backend::{PlaceShares, add_longest_due, aged_places, rotate_tokens},
    },
};

use super::{
    Mongo,
    connection::to_store_error,
    lists,
    log::WAKE,
    rows::{self, STORED_BYTES, TOKEN, WAKE_TOKEN},
};

impl Mongo {
    /// Finds due executions in the order of [`HeadQuery::Due`]. The last entries of the list are
    /// for executions that have been due longest, so that a low priority does not wait forever.
    pub(super) async fn find_due(
        &self,
        now: Timestamp,
        turn: u32,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let places = most - aged_places(most, turn);
        let mut tokens = self.find_due_tokens().await?;
        let mut heads = if tokens.len() < 2 {
            self.find_by_priority(None, now, places).await?
        } else {
            rotate_tokens(&mut tokens, turn, most);
            let mut shares = PlaceShares::new(places, tokens.len());
            while let Some(read) = shares.next_read() {
                let token = Some(tokens[read.token].clone());
                shares.add_found(read, self.find_by_priority(token, now, read.most).await?);
            }
            shares.into_list()
        };
        if heads.len() < most {
            let longest = self.find_heads(HeadQuery::DueAfter { now, after: None }, most).await?;
            add_longest_due(&mut heads, longest, most);
        }
        Ok(heads)
    }

    /// Finds due executions of a token, or of all tokens, the highest priority first.
    async fn find_by_priority(
        &self,
        token: Option<Bson>,
        now: Timestamp,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let of_token = token.map_or_else(Row::new, |token| doc! { WAKE_TOKEN: token });
        let (mut heads, mut priorities, mut last) = (Vec::new(), 0, None);
        while heads.len() < most && priorities < limits::PRIORITIES {
            let Some(priority) = self.find_next_priority(of_token.clone(), last).await? else {
                break;
            };
            let mut due = of_token.clone();
            due.insert("priority", priority.clone());
            due.insert(WAKE, doc! { "$lte": now.timestamp_micros() });
            let found = self.heads.find(due).sort(doc! { WAKE: 1, "_id": 1 });
            let found = found.limit(lists::to_limit(most - heads.len())).await;
            heads.append(&mut lists::read_heads(found).await?);
            (priorities, last) = (priorities + 1, Some(priority));
        }
        Ok(heads)
    }

    /// Returns the highest priority of a claimable execution below `last`, with one access to the
    /// index. Priorities that are not numbers are left out, because their heads are damaged.
    async fn find_next_priority(
        &self,
        mut next: Row,
        last: Option<Bson>,
    ) -> Result<Option<Bson>, StoreError> {
        let below = last.map_or(doc! { "$lte": f64::INFINITY }, |last| doc! { "$lt": last });
        next.insert("priority", below);
        next.insert(WAKE, doc! { "$exists": true });
        let found = self.heads.find_one(next).sort(doc! { "priority": -1, WAKE: 1 });
        let found =
            found.projection(doc! { "priority": 1 }).await.map_err(|err| to_store_error(&err))?;
        Ok(found.and_then(|mut head| head.remove("priority")))
    }

    /// Returns the tokens of claimable executions, at most [`limits::DUE_TOKENS`]. The server
    /// answers from the index alone, with one access for each token.
    async fn find_due_tokens(&self) -> Result<Vec<Bson>, StoreError> {
        let tokens = self.heads.distinct(WAKE_TOKEN, doc! { WAKE_TOKEN: { "$gte": "" } }).await;
        let mut tokens = tokens.map_err(|err| to_store_error(&err))?;
        tokens.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        tokens.truncate(limits::DUE_TOKENS);
        Ok(tokens)
    }

    pub(super) async fn count_active_of(&self, token: &str) -> Result<u64, StoreError> {
        let active = doc! { TOKEN: token, "state": { "$nin": rows::FINISHED_STATES.to_vec() } };
        self.heads.count_documents(active).await.map_err(|err| to_store_error(&err))
    }

    pub(super) async fn sum_stored_bytes_of(&self, token: &str) -> Result<u64, StoreError> {
        let sum = [
            doc! { "$match": { TOKEN: token } },
            doc! { "$group": {
                "_id": Bson::Null, "bytes": { "$sum": format!("${STORED_BYTES}") },
            } },
        ];
        let rows = lists::read_all(self.heads.aggregate(sum).await).await?;
        let bytes = rows.first().and_then(|row| row.get("bytes"));
        let bytes =
            bytes.and_then(|bytes| bytes.as_i64().or_else(|| bytes.as_i32().map(i64::from)));
        Ok(bytes.unwrap_or_default().unsigned_abs())
    }
}
