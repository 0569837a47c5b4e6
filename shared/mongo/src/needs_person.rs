use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document as Row, doc};
use shared::store::StoreError;

use super::{Mongo, lists};

/// Maximum number of ids in a query. For more requests, the store joins the collections instead.
pub(super) const MAX_IDS: usize = 20_000;

impl Mongo {
    /// Returns the requests with an execution that needs a person, or `None` if there are more than
    /// [`MAX_IDS`].
    pub(super) async fn find_requests_needing_person(
        &self,
    ) -> Result<Option<Vec<Bson>>, StoreError> {
        let pipeline = [
            doc! { "$match": { "needsPerson": true } },
            doc! { "$group": { "_id": "$requestId" } },
            doc! { "$limit": lists::to_limit(MAX_IDS + 1) },
        ];
        let rows = lists::read_all(self.heads.aggregate(pipeline).await).await?;
        let is_complete = rows.len() <= MAX_IDS;
        Ok(is_complete.then(|| rows.into_iter().filter_map(|mut row| row.remove("_id")).collect()))
    }

    pub(super) async fn find_ancestors_needing_person(&self) -> Result<Vec<Bson>, StoreError> {
        let children = doc! { "needsPerson": true, "parentExecutionId": { "$exists": true } };
        let mut level = self.find_parents(children).await?;
        let mut found = BTreeSet::new();
        while !level.is_empty() {
            level.retain(|id| found.insert(id.clone()));
            let mut next = Vec::new();
            for ids in level.chunks(MAX_IDS) {
                let above =
                    doc! { "_id": { "$in": ids }, "parentExecutionId": { "$exists": true } };
                next.append(&mut self.find_parents(above).await?);
            }
            level = next;
        }
        Ok(found.into_iter().map(Bson::from).collect())
    }

    async fn find_parents(&self, children: Row) -> Result<Vec<String>, StoreError> {
        let group = doc! { "$group": { "_id": "$parentExecutionId" } };
        let pipeline = [doc! { "$match": children }, group];
        let rows = lists::read_all(self.heads.aggregate(pipeline).await).await?;
        Ok(rows.iter().filter_map(|row| row.get_str("_id").ok()).map(str::to_owned).collect())
    }
}
