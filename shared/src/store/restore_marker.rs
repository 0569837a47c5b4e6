//! Marks a store while a backup is restored into it, so that every program refuses the store if the
//! restore does not finish.

use serde::{Deserialize, Serialize};

use super::{Record, RecordKind, Store, StoreError, WriteCondition};
use crate::clock::Timestamp;

const NAME: &str = "restore";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreMarker {
    pub file: String,
    /// The checksum of the file in lower-case digits.
    pub sha256: String,
}

impl dyn Store + '_ {
    pub async fn find_restore(&self) -> Result<Option<RestoreMarker>, StoreError> {
        let found = self.find_record(RecordKind::Restore, NAME).await?;
        found.as_ref().map(Record::parse_value).transpose()
    }

    /// Marks the store. Fails with [taken](StoreError::Taken) if it is marked already.
    pub async fn begin_restore(
        &self,
        marker: &RestoreMarker,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let record = Record::new(RecordKind::Restore, NAME, marker, at);
        let is_new = self.put_record(&record, WriteCondition::Exists).await?;
        if is_new { Ok(()) } else { Err(StoreError::Taken) }
    }

    pub async fn end_restore(&self) -> Result<(), StoreError> {
        self.remove_record(RecordKind::Restore, NAME).await.map(drop)
    }

    /// Fails with [incomplete](StoreError::Incomplete) if a restore has not ended.
    pub async fn check_restored(&self) -> Result<(), StoreError> {
        match self.find_restore().await? {
            Some(RestoreMarker { file, .. }) => Err(StoreError::Incomplete { file }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    #[tokio::test]
    async fn a_marked_store_is_incomplete_until_the_restore_ends() {
        let store = Memory::new();
        let store: &dyn Store = &store;
        let marker = RestoreMarker { file: "/b".to_owned(), sha256: "00".to_owned() };
        assert_eq!((store.check_restored().await, store.find_restore().await), (Ok(()), Ok(None)));
        assert_eq!(store.begin_restore(&marker, Timestamp::UNIX_EPOCH).await, Ok(()));
        let again = store.begin_restore(&marker, Timestamp::UNIX_EPOCH).await;
        assert_eq!(again, Err(StoreError::Taken));
        let incomplete = StoreError::Incomplete { file: "/b".to_owned() };
        assert_eq!(store.check_restored().await, Err(incomplete));
        assert_eq!(store.find_restore().await, Ok(Some(marker)));
        store.end_restore().await.unwrap();
        assert_eq!(store.check_restored().await, Ok(()));
    }
}
