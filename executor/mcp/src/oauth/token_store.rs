//! Tokens of people who logged in, as files that only their owner may read.

use std::{
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use oauth2::TokenResponse as _;
use reqwest::Url;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::{hex::to_hex, id::ToolSetName};
use tokio::time::{Instant, sleep};

use super::config::is_scope;

const MAX_FILE_BYTES: u64 = 256 << 10;
/// Bytes of the URL's digest that the name of the file contains.
const DIGEST_BYTES: usize = 8;
/// A token is refreshed this many seconds before it expires, or after half of its lifetime if that
/// is later.
const RENEWAL_MARGIN_SECONDS: u64 = 30;
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 256;
/// Time limit for taking the lock. It covers two requests of another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(75);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The folder of all logins of a person: one file for each toolset and server.
#[derive(Clone, Debug)]
pub struct Logins {
    folder: PathBuf,
}

/// The file with the login to one server. Its name contains a digest of the URL, so that another
/// server with the same toolset name does not get the token.
#[derive(Clone, Debug)]
pub(super) struct TokenStore {
    file: Arc<PathBuf>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<RegisteredClient>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) granted: Option<StoredCredentials>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) wanted: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisteredClient {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    /// The time when the secret expires, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret_until: Option<u64>,
    pub(super) redirect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) issuer: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct AccessToken {
    pub(super) text: String,
    /// Time until which the token is used, in seconds since 1970. The token expires a little later.
    use_until: Option<u64>,
}

impl AccessToken {
    /// Creates a token with the time of its grant and its lifetime, if they are known.
    pub(super) fn new(text: &str, granted_at: Option<u64>, lifetime: Option<Duration>) -> Self {
        let use_until = granted_at.zip(lifetime).map(|(granted_at, lifetime)| {
            let lifetime = lifetime.as_secs();
            granted_at.saturating_add(lifetime - RENEWAL_MARGIN_SECONDS.min(lifetime.div_ceil(2)))
        });
        Self { text: text.to_owned(), use_until }
    }

    pub(super) fn is_usable(&self, now: u64) -> bool {
        self.use_until.is_none_or(|until| now < until)
    }
}

#[derive(Debug)]
pub(super) struct LoginLock(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Logins {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn store_for(&self, set: &ToolSetName, server: &Url) -> TokenStore {
        let digest = Sha256::digest(server.as_str().as_bytes());
        let digest = to_hex(&digest[..DIGEST_BYTES]);
        TokenStore { file: Arc::new(self.folder.join(format!("{set}-{digest}.json"))) }
    }
}

impl TokenStore {
    pub(super) fn read(&self) -> Result<Option<LoginRecord>, String> {
        let file = match File::open(&*self.file) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(self.io_error(&err)),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(|err| self.io_error(&err))?;
        let record = serde_json::from_slice(&text);
        record.map(Some).map_err(|_| {
            format!("`{}` is not a stored login: remove it and log in again", self.file.display())
        })
    }

    pub(super) fn write(&self, record: &LoginRecord) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(record).map_err(|err| err.to_string())?;
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MAX_FILE_BYTES) {
            return Err(format!("the login has more than {MAX_FILE_BYTES} bytes"));
        }
        self.replace_file(&text).map_err(|err| self.io_error(&err))
    }

    fn replace_file(&self, text: &[u8]) -> io::Result<()> {
        self.create_folder()?;
        let new = self.file.with_extension("new");
        let mut file = private_file_options().truncate(true).open(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &*self.file)
    }

    fn create_folder(&self) -> io::Result<()> {
        let Some(folder) = self.file.parent() else { return Ok(()) };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)
    }

    pub(super) fn remove(&self) -> Result<bool, String> {
        match fs::remove_file(&*self.file) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(self.io_error(&err)),
        }
    }

    /// Locks the login against changes by other processes and tasks. Each of them holds the lock
    /// for one or two requests.
    pub(super) async fn lock(&self) -> Result<LoginLock, String> {
        self.lock_within(LOCK_TIMEOUT).await
    }

    async fn lock_within(&self, limit: Duration) -> Result<LoginLock, String> {
        let open = || {
            self.create_folder()?;
            private_file_options().open(self.file.with_extension("lock"))
        };
        let file = open().map_err(|err| self.io_error(&err))?;
        let end = Instant::now() + limit;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(LoginLock(file)),
                Err(TryLockError::Error(err)) => return Err(self.io_error(&err)),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    sleep(LOCK_POLL_INTERVAL).await;
                }
                Err(TryLockError::WouldBlock) => {
                    let file = self.file.display();
                    return Err(format!("`{file}` is in use by another process: try again later"));
                }
            }
        }
    }

    pub(super) async fn add_wanted_scopes(&self, scopes: &str) -> Result<(), String> {
        let may_be = |scope: &&str| is_scope(scope) && scope.len() <= MAX_SCOPE_BYTES;
        let scopes: Vec<&str> = scopes.split_whitespace().filter(may_be).collect();
        if scopes.is_empty() {
            return Ok(());
        }
        let _lock = self.lock().await?;
        let mut record = self.read()?.unwrap_or_default();
        let before = record.wanted.len();
        for scope in scopes {
            let is_there = record.wanted.iter().any(|known| known == scope);
            if !is_there && record.wanted.len() < MAX_SCOPES {
                record.wanted.push(scope.to_owned());
            }
        }
        if record.wanted.len() == before { Ok(()) } else { self.write(&record) }
    }

    fn io_error(&self, err: &io::Error) -> String {
        format!("`{}` cannot be used: {err}", self.file.display())
    }
}

fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

impl LoginRecord {
    pub(super) fn token(&self) -> Option<AccessToken> {
        let granted = self.granted.as_ref()?;
        let token = granted.token_response.as_ref()?;
        let text = token.access_token().secret();
        Some(AccessToken::new(text, granted.token_received_at, token.expires_in()))
    }

    /// Returns whether the login has no valid token and no refresh token.
    pub(super) fn has_expired(&self, now: u64) -> bool {
        let is_usable = self.token().is_some_and(|token| token.is_usable(now));
        !is_usable && self.refresh_token().is_none()
    }

    pub(super) fn refresh_token(&self) -> Option<&str> {
        let token = self.granted.as_ref()?.token_response.as_ref()?;
        Some(token.refresh_token()?.secret().as_str())
    }
}

impl fmt::Debug for LoginRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRecord").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("use_until", &self.use_until).finish_non_exhaustive()
    }
}

/// rmcp reads and writes the tokens through this trait. The caller must hold the lock.
#[async_trait]
impl CredentialStore for TokenStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let record = self.read().map_err(AuthError::CredentialStoreError)?;
        Ok(record.and_then(|record| record.granted))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let write = || {
            let record = self.read()?.unwrap_or_default();
            self.write(&LoginRecord { granted: Some(credentials), ..record })
        };
        write().map_err(AuthError::CredentialStoreError)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let cleared = || match self.read()? {
            Some(record) => self.write(&LoginRecord { granted: None, ..record }),
            None => Ok(()),
        };
        cleared().map_err(AuthError::CredentialStoreError)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in super::super) fn record(token: &str, received_at: u64, lifetime: u64) -> LoginRecord {
        serde_json::from_value(json!({
            "client": { "id": "c", "redirect": "http://127.0.0.1:1/callback" },
            "granted": {
                "client_id": "c",
                "granted_scopes": ["read"],
                "token_received_at": received_at,
                "token_response": {
                    "access_token": token, "token_type": "bearer",
                    "expires_in": lifetime, "refresh_token": "the-refresh-token",
                },
            },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_login_is_stored_by_toolset_and_url() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().join("deep/logins"));
        let of =
            |set: &str, url: &str| logins.store_for(&set.parse().unwrap(), &url.parse().unwrap());
        let store = of("s", "https://a/mcp");
        assert!(store.read().unwrap().is_none() && !store.remove().unwrap());
        store.write(&record("the-token", 1_000, 60)).unwrap();
        let read = store.read().unwrap().unwrap();
        let token = read.token().unwrap();
        assert_eq!(token.text, "the-token");
        assert!(token.is_usable(1_029) && !token.is_usable(1_030));
        assert_eq!(read.refresh_token(), Some("the-refresh-token"));
        for debug_text in [format!("{read:?}"), format!("{:?}", read.token()), format!("{store:?}")]
        {
            assert!(!debug_text.contains("the-"), "{debug_text}");
        }
        for other in [of("t", "https://a/mcp"), of("s", "https://a/"), of("s", "https://b/mcp")] {
            assert!(other.read().unwrap().is_none(), "{other:?}");
        }
        assert!(store.remove().unwrap());
    }

    #[test]
    fn a_token_is_renewed_before_it_expires() {
        for (lifetime, use_until) in [(0, 100), (1, 100), (10, 105), (60, 130), (3_600, 3_670)] {
            let token = AccessToken::new("x", Some(100), Some(Duration::from_secs(lifetime)));
            assert!(token.is_usable(use_until - 1) && !token.is_usable(use_until), "{lifetime}");
        }
        assert!(AccessToken::new("x", None, None).is_usable(u64::MAX));
        let far = AccessToken::new("x", Some(100), Some(Duration::from_secs(u64::MAX)));
        assert!(far.is_usable(u64::MAX - 1));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn token_files_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().join("logins"));
        let store = logins.store_for(&"s".parse().unwrap(), &"https://a/".parse().unwrap());
        store.add_wanted_scopes("read").await.unwrap();
        store.write(&record("x", 0, 0)).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(logins.folder.clone()), 0o700);
        let files: Vec<PathBuf> =
            fs::read_dir(&logins.folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files.into_iter().all(|file| mode(file) == 0o600));
    }

    #[tokio::test]
    async fn wanted_scopes_are_stored_once_and_limited() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let store = logins.store_for(&"s".parse().unwrap(), &"https://a/".parse().unwrap());
        store.add_wanted_scopes("  ").await.unwrap();
        assert!(store.read().unwrap().is_none());
        store.add_wanted_scopes("a b a \"x\" \u{7f}").await.unwrap();
        store.add_wanted_scopes("b c").await.unwrap();
        assert_eq!(store.read().unwrap().unwrap().wanted, ["a", "b", "c"]);
        let many: Vec<String> = (0..1_000).map(|n| format!("s{n}")).collect();
        store.add_wanted_scopes(&many.join(" ")).await.unwrap();
        assert_eq!(store.read().unwrap().unwrap().wanted.len(), MAX_SCOPES);
    }

    #[tokio::test]
    async fn a_too_large_login_is_rejected_and_the_stored_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let store = logins.store_for(&"s".parse().unwrap(), &"https://a/".parse().unwrap());
        store.add_wanted_scopes(&format!("a {}", "x".repeat(300 << 10))).await.unwrap();
        assert_eq!(store.read().unwrap().unwrap().wanted, ["a"]);
        let error = store.write(&record(&"x".repeat(300 << 10), 0, 0)).unwrap_err();
        assert_eq!(error, "the login has more than 262144 bytes");
        assert_eq!(store.read().unwrap().unwrap().wanted, ["a"]);
    }

    #[tokio::test]
    async fn a_damaged_login_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let store = logins.store_for(&"s".parse().unwrap(), &"https://a/".parse().unwrap());
        fs::write(&*store.file, "{").unwrap();
        let error = store.read().unwrap_err();
        assert!(error.ends_with("is not a stored login: remove it and log in again"), "{error}");
    }

    #[tokio::test]
    async fn a_login_is_locked_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let store = logins.store_for(&"s".parse().unwrap(), &"https://a/".parse().unwrap());
        let first = store.lock().await.unwrap();
        let other = File::open(store.file.with_extension("lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        let error = store.lock_within(Duration::ZERO).await.unwrap_err();
        assert!(error.ends_with("is in use by another process: try again later"), "{error}");
        drop(first);
        other.try_lock().unwrap();
        drop(other);
        store.lock_within(Duration::ZERO).await.unwrap();
    }
}
