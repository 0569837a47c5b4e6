//! Removes objects of a list, except objects that are still in use.

use shared::{
    clock::Timestamp,
    store::{Removable, StoreError},
};

use super::{
    Answer, Change, Sqlite,
    removal::{BATCH_LEN, Removal, UnusedKind},
};

impl Sqlite {
    pub(super) async fn remove_objects(&self, objects: &Removable) -> Result<usize, StoreError> {
        let (kind, ids): (_, Vec<String>) = match objects {
            Removable::Executions(ids) => {
                (UnusedKind::Executions, ids.iter().map(ToString::to_string).collect())
            }
            Removable::Plans(ids) => {
                (UnusedKind::Plans, ids.iter().map(ToString::to_string).collect())
            }
            Removable::Requests(ids) => {
                (UnusedKind::Requests, ids.iter().map(ToString::to_string).collect())
            }
        };
        let mut removed = 0;
        for ids in ids.chunks(BATCH_LEN) {
            // The age of an object does not matter here. The writer checks that no object is
            // in use.
            let removal = Removal::Unused { kind, before: Timestamp::MAX_UTC, ids: ids.to_vec() };
            if let Answer::Removed(n) = self.write(Change::Prune(removal)).await? {
                removed += n;
            }
        }
        Ok(removed)
    }
}
