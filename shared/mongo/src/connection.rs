use std::time::Duration;

use mongodb::{
    Client, Collection, Database,
    bson::{Document, doc},
    error::{Error, ErrorKind},
    options::{
        ClientOptions, CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria,
        WriteConcern,
    },
};
use shared::{limits, store::StoreError};

/// The database that is used if the URL names none.
const DEFAULT_DATABASE: &str = "faber";
/// The time that is used if the URL has no `serverSelectionTimeoutMS`.
const DEFAULT_SELECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which a majority must confirm a write.
pub(super) const MAJORITY_TIMEOUT: Duration = Duration::from_secs(10);

/// The server's error code for an insert whose key exists.
pub(super) const DUPLICATE_KEY_CODE: i32 = 11_000;
/// The server's error code for a document above 16 MB.
pub(super) const TOO_LARGE_CODE: i32 = 10_334;

pub(super) async fn connect(url: &str) -> Result<Database, StoreError> {
    let mut options = ClientOptions::parse(url).await.map_err(|err| to_open_error(url, &err))?;
    options.app_name.get_or_insert_with(|| "faber".to_owned());
    options.server_selection_timeout.get_or_insert(DEFAULT_SELECTION_TIMEOUT);
    options.retry_writes = Some(false);
    options.read_concern = Some(ReadConcern::majority());
    options.write_concern = Some(majority_write_concern());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    let client = Client::with_options(options).map_err(|err| to_open_error(url, &err))?;
    let database = client.default_database().unwrap_or_else(|| client.database(DEFAULT_DATABASE));
    let hello = database.run_command(doc! { "hello": 1 }).await;
    let hello = hello.map_err(|err| to_store_error(&err))?;
    let is_sharded = hello.get_str("msg").is_ok_and(|message| message == "isdbgrid");
    if !is_sharded && !hello.contains_key("setName") {
        return Err(StoreError::Unavailable(
            "the MongoDB server is not a replica set, so it can neither confirm writes by \
             majority nor report changes: start it with `--replSet rs0` and run `rs.initiate()` \
             once"
                .to_owned(),
        ));
    }
    Ok(database)
}

fn majority_write_concern() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(MAJORITY_TIMEOUT);
    concern
}

/// Returns a collection whose reads see writes that no majority has confirmed yet.
pub(super) fn local_collection(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::local()).build();
    database.collection_with_options(name, options)
}

/// Returns a collection whose writes wait for the primary only. The data is lost if the primary
/// fails immediately afterwards.
pub(super) fn unconfirmed_collection(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::local());
    let options = options.write_concern(WriteConcern::nodes(1)).build();
    database.collection_with_options(name, options)
}

fn to_open_error(url: &str, err: &Error) -> StoreError {
    match &*err.kind {
        ErrorKind::InvalidArgument { message, .. } => {
            StoreError::Address { url: hide_password(url), why: message.clone() }
        }
        _ => to_store_error(err),
    }
}

fn hide_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

pub(super) fn to_store_error(err: &Error) -> StoreError {
    if is_too_large(err) {
        return StoreError::TooLarge { bytes: limits::DOCUMENT_BYTES };
    }
    StoreError::Unavailable(match &*err.kind {
        ErrorKind::ServerSelection { .. } => {
            "no primary of the MongoDB replica set answers: check the address, and `rs.status()`"
                .to_owned()
        }
        ErrorKind::Authentication { message, .. } => {
            format!("MongoDB refuses the user: check name and password in the URL ({message})")
        }
        ErrorKind::DnsResolve { message, .. } => {
            format!("the address of MongoDB cannot be resolved: check it ({message})")
        }
        other => format!("the MongoDB operation failed: {}", describe_kind(other)),
    })
}

/// Returns the message of the server or the system, because the driver's `Display` text shows its
/// types as `Debug` does.
fn describe_kind(kind: &ErrorKind) -> String {
    use mongodb::error::WriteFailure;
    tracing::debug!(?kind, "MongoDB rejected an operation");
    match kind {
        ErrorKind::Command(err) => add_code_name(&err.code_name, &err.message),
        ErrorKind::Write(WriteFailure::WriteError(err)) => {
            add_code_name(err.code_name.as_deref().unwrap_or_default(), &err.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(err)) => {
            add_code_name(&err.code_name, &err.message)
        }
        ErrorKind::Io(err) => format!("the connection failed ({err})"),
        ErrorKind::ConnectionPoolCleared { .. } => "the connection was lost".to_owned(),
        ErrorKind::InvalidArgument { message, .. } => message.clone(),
        _ => "`FABER_LOG=mongo=debug` logs the driver's message".to_owned(),
    }
}

fn add_code_name(name: &str, message: &str) -> String {
    if name.is_empty() { message.to_owned() } else { format!("{message} ({name})") }
}

/// Returns `true` if the server or the driver rejected a document because of its size.
fn is_too_large(err: &Error) -> bool {
    use mongodb::error::WriteFailure;
    match &*err.kind {
        ErrorKind::Write(WriteFailure::WriteError(err)) => err.code == TOO_LARGE_CODE,
        ErrorKind::Command(err) => err.code == TOO_LARGE_CODE,
        ErrorKind::InvalidArgument { message, .. } => message.contains("maximum document size"),
        _ => false,
    }
}

pub(super) fn is_duplicate_key(err: &Error) -> bool {
    use mongodb::error::WriteFailure;
    match &*err.kind {
        ErrorKind::Write(WriteFailure::WriteError(err)) => err.code == DUPLICATE_KEY_CODE,
        ErrorKind::Command(err) => err.code == DUPLICATE_KEY_CODE,
        ErrorKind::InsertMany(err) => {
            err.write_errors.iter().flatten().any(|error| error.code == DUPLICATE_KEY_CODE)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_driver_has_a_readable_message() {
        let reset = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset by peer");
        let err = to_store_error(&Error::from(reset));
        let StoreError::Unavailable(why) = err else { panic!("{err:?}") };
        assert_eq!(why, "the MongoDB operation failed: the connection failed (reset by peer)");
    }

    #[test]
    fn errors_show_the_url_without_user_and_password() {
        let shown = hide_password("mongodb://me:se@cret@host:1/x");
        assert_eq!(shown, "mongodb://…@host:1/x");
        assert_eq!(hide_password("mongodb://host"), "mongodb://host");
    }
}
