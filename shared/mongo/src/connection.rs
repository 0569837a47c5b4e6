//! The connection, and what MongoDB's errors mean for a person.

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

/// The database where the URL names none.
const DATABASE: &str = "faber";
/// How long a primary is looked for where the URL does not say.
const SELECTION: Duration = Duration::from_secs(5);
/// How long a majority may take to confirm a write.
pub(super) const CONFIRMATION: Duration = Duration::from_secs(10);

/// The server's code for a key that is there.
pub(super) const DUPLICATE_KEY: i32 = 11_000;
/// The server's code for a document above 16 MB.
pub(super) const TOO_LARGE: i32 = 10_334;

/// Connects to the primary of a replica set.
pub(super) async fn connect(url: &str) -> Result<Database, StoreError> {
    let mut options = ClientOptions::parse(url).await.map_err(|err| refused(url, &err))?;
    options.app_name.get_or_insert_with(|| "faber".to_owned());
    options.server_selection_timeout.get_or_insert(SELECTION);
    options.retry_writes = Some(false);
    options.read_concern = Some(ReadConcern::majority());
    options.write_concern = Some(majority());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    let client = Client::with_options(options).map_err(|err| refused(url, &err))?;
    let database = client.default_database().unwrap_or_else(|| client.database(DATABASE));
    let hello = database.run_command(doc! { "hello": 1 }).await.map_err(|err| failed(&err))?;
    let is_set =
        hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|it| it == "isdbgrid");
    if !is_set {
        return Err(StoreError::Unavailable(
            "the MongoDB server is no replica set, so it can neither confirm writes by majority \
             nor tell of changes: start it with `--replSet rs0` and run `rs.initiate()` once"
                .to_owned(),
        ));
    }
    Ok(database)
}

/// Returns the write concern of whatever counts.
pub(super) fn majority() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(CONFIRMATION);
    concern
}

/// Returns a collection as the primary has it.
pub(super) fn caches(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::local()).build();
    database.collection_with_options(name, options)
}

/// Returns a collection that no majority confirms, because it is a cache.
pub(super) fn unconfirmed(database: &Database, name: &str) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::local());
    let options = options.write_concern(WriteConcern::nodes(1)).build();
    database.collection_with_options(name, options)
}

fn refused(url: &str, err: &Error) -> StoreError {
    match &*err.kind {
        ErrorKind::InvalidArgument { message, .. } => {
            StoreError::Address { url: without_password(url), why: message.clone() }
        }
        _ => failed(err),
    }
}

/// Returns a URL as it may be shown.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

/// Says what an error of the driver means, and what to do.
pub(super) fn failed(err: &Error) -> StoreError {
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
        other => format!("MongoDB could not do it: {}", reason(other)),
    })
}

/// Returns what the server or the system said. The driver itself writes its types as a debugger
/// shows them, which goes to the log.
fn reason(kind: &ErrorKind) -> String {
    use mongodb::error::WriteFailure;
    tracing::debug!(?kind, "MongoDB refused an operation");
    match kind {
        ErrorKind::Command(err) => said(&err.code_name, &err.message),
        ErrorKind::Write(WriteFailure::WriteError(err)) => {
            said(err.code_name.as_deref().unwrap_or_default(), &err.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(err)) => {
            said(&err.code_name, &err.message)
        }
        ErrorKind::Io(err) => format!("the connection failed ({err})"),
        ErrorKind::ConnectionPoolCleared { .. } => "the connection was lost".to_owned(),
        ErrorKind::InvalidArgument { message, .. } => message.clone(),
        _ => "`FABER_LOG=mongo=debug` logs what the driver says".to_owned(),
    }
}

fn said(name: &str, message: &str) -> String {
    if name.is_empty() { message.to_owned() } else { format!("{message} ({name})") }
}

/// Returns whether a document was refused for its size, by the server or by the driver.
fn is_too_large(err: &Error) -> bool {
    use mongodb::error::WriteFailure;
    match &*err.kind {
        ErrorKind::Write(WriteFailure::WriteError(err)) => err.code == TOO_LARGE,
        ErrorKind::Command(err) => err.code == TOO_LARGE,
        ErrorKind::InvalidArgument { message, .. } => message.contains("maximum document size"),
        _ => false,
    }
}

/// Returns whether the key was there.
pub(super) fn is_duplicate(err: &Error) -> bool {
    use mongodb::error::WriteFailure;
    match &*err.kind {
        ErrorKind::Write(WriteFailure::WriteError(err)) => err.code == DUPLICATE_KEY,
        ErrorKind::Command(err) => err.code == DUPLICATE_KEY,
        ErrorKind::InsertMany(err) => {
            err.write_errors.iter().flatten().any(|it| it.code == DUPLICATE_KEY)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_says_is_no_text_of_a_debugger() {
        let reset = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset by peer");
        let StoreError::Unavailable(why) = failed(&Error::from(reset)) else { panic!("reached") };
        assert_eq!(why, "MongoDB could not do it: the connection failed (reset by peer)");
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_password("mongodb://me:se@cret@host:1/x");
        assert_eq!(shown, "mongodb://…@host:1/x");
        assert_eq!(without_password("mongodb://host"), "mongodb://host");
    }
}
