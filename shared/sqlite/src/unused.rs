//! Removes given objects that nothing needs.

use shared::{
    clock::Timestamp,
    store::{Removable, StoreError},
};

use super::{
    Answer, Change, Sqlite,
    removal::{BATCH_LEN, Kind, Removal},
};

impl Sqlite {
    pub(super) async fn remove_objects(&self, objects: &Removable) -> Result<usize, StoreError> {
        let (kind, ids): (_, Vec<String>) = match objects {
            Removable::Executions(ids) => {
                (Kind::Executions, ids.iter().map(ToString::to_string).collect())
            }
            Removable::Plans(ids) => (Kind::Plans, ids.iter().map(ToString::to_string).collect()),
            Removable::Requests(ids) => {
                (Kind::Requests, ids.iter().map(ToString::to_string).collect())
            }
        };
        let mut removed = 0;
        for ids in ids.chunks(BATCH_LEN) {
            // The writer checks again that nothing needs these objects.
            let removal = Removal::Unused { kind, before: Timestamp::MAX_UTC, ids: ids.to_vec() };
            if let Answer::Removed(n) = self.write(Change::Prune(removal)).await? {
                removed += n;
            }
        }
        Ok(removed)
    }
}
