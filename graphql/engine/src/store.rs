use std::{path::Path, sync::Arc};

use encryption::{protect, protect_copies};
use mongo::Mongo;
use shared::store::{Store, StoreError, memory::Memory};
use sqlite::Sqlite;

pub use encryption::{Key, KeyError, Keyring, LeftValues, RekeyProgress, RekeyReport};

/// Opens a store: `sqlite:PATH`, `mongodb://…`, `mongodb+srv://…` or `memory:`.
///
/// Without its keys, an encrypted store shows only lists, states and counts, and refuses new
/// executions. Open it with [`open_encrypted_store`].
///
/// # Errors
///
/// If the address is invalid, the store is unreachable, a newer version wrote it, or a restore of a
/// backup into it has not ended.
pub async fn open_store(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    protect(open_restored_store(url).await?, None).await
}

/// Opens a store as [`open_store`] does, and encrypts and decrypts its values.
///
/// If the store was not encrypted before, its old values stay as they are.
///
/// # Errors
///
/// As [`open_store`]. Also if encryption begins while workers use the store.
pub async fn open_encrypted_store(url: &str, keys: Keyring) -> Result<Arc<dyn Store>, StoreError> {
    protect(open_restored_store(url).await?, Some(keys)).await
}

/// Opens a store to copy values from it or into it, even if a restore into it is incomplete.
/// Encrypted values stay as they are. Other values are encrypted if there are keys.
///
/// # Errors
///
/// If the address is invalid, the store is unreachable, or a newer version wrote it.
pub async fn open_store_for_copies(
    url: &str,
    keys: Option<Keyring>,
) -> Result<Arc<dyn Store>, StoreError> {
    protect_copies(open_any_store(url).await?, keys).await
}

/// Encrypts with the active key all values of a store that are clear or have another key. Returns
/// the store without decryption.
///
/// # Errors
///
/// As [`open_encrypted_store`]. Also if the active key is missing.
pub async fn rekey(
    url: &str,
    keys: Keyring,
    show: &(dyn Fn(RekeyProgress) + Sync),
) -> Result<(Arc<dyn Store>, RekeyReport), StoreError> {
    let store = open_restored_store(url).await?;
    let report = encryption::rekey(Arc::clone(&store), keys, show).await?;
    Ok((store, report))
}

async fn open_restored_store(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let store = open_any_store(url).await?;
    store.check_restored().await?;
    Ok(store)
}

async fn open_any_store(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let refuse = |reason: &str| StoreError::Address { url: url.to_owned(), why: reason.to_owned() };
    let (scheme, rest) = url.split_once(':').ok_or_else(|| refuse("it has no scheme"))?;
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(Memory::new())),
        "memory" => Err(refuse("nothing may follow `memory:`")),
        "sqlite" if rest.is_empty() => Err(refuse("the path is missing")),
        "sqlite" => {
            let path = to_path(rest).to_owned();
            let opening = tokio::task::spawn_blocking(move || Sqlite::open(&path));
            let ended =
                |err| StoreError::Unavailable(format!("opening the store was interrupted: {err}"));
            Ok(Arc::new(opening.await.map_err(ended)??))
        }
        "mongodb" | "mongodb+srv" => Ok(Arc::new(Mongo::open(url).await?)),
        _ => Err(refuse("its scheme is unknown")),
    }
}

pub fn sqlite_path(url: &str) -> Option<&Path> {
    url.strip_prefix("sqlite:").filter(|rest| !rest.is_empty()).map(to_path)
}

fn to_path(rest: &str) -> &Path {
    Path::new(rest.strip_prefix("//").unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_store_url_is_rejected() {
        for url in ["", "x", "file:x", "sqlite:", "memory:x", "mongodb//x", "mongodb://"] {
            let err = open_store(url).await.map(drop).unwrap_err();
            assert!(matches!(err, StoreError::Address { .. }), "{url}: {err}");
        }
    }
}
