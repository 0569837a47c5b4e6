//! The download of the local planning model: one file in GGUF. A note of its origin is written
//! last, so a folder with a note has a complete and checked model.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::embed::pull::{
    Progress, PullError,
    download::{self, DownloadRequest, HeadResult},
};

pub const PLANNER_MODEL: &str = "planner";
const NOTE_FILE: &str = "model.json";
const UNCHECKED_PREFIX: &str = "new-";
const GGUF_MAGIC: &[u8] = b"GGUF";

/// The recommended model: a revision of Qwen2.5-1.5B-Instruct in 4 bits.
const MODEL_PATH: &str = "Qwen/Qwen2.5-1.5B-Instruct-GGUF/resolve/91cad51170dc346986eccefdc2dd33a9da36ead9/\
                    qwen2.5-1.5b-instruct-q4_k_m.gguf";
const MODEL_SHA256: &str = "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e";
const MODEL_BYTES: u64 = 1_117_320_736;
const LICENCE: &str = "Apache-2.0";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub url: Url,
    pub file: String,
    pub bytes: Option<u64>,
    /// `None` if Faber does not know the licence.
    pub licence: Option<&'static str>,
    /// The SHA-256 that the file must have. `None` means that the file is not checked.
    pub sha256: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downloaded {
    pub file: String,
    pub url: String,
    pub sha256: Option<String>,
}

/// Returns the model to download: the model at `url`, or the recommended model of `hub`. Asks the
/// server for the size and the checksum if Faber does not know them.
pub async fn find_offer(
    hub: &str,
    url: Option<&str>,
    sha256: Option<&str>,
) -> Result<Offer, PullError> {
    if let Some(sha256) = sha256.filter(|sha256| !is_sha256(sha256)) {
        return Err(PullError::Checksum(sha256.to_owned()));
    }
    let given = sha256.map(str::to_ascii_lowercase);
    let address =
        url.map_or_else(|| format!("{}/{MODEL_PATH}", hub.trim_end_matches('/')), str::to_owned);
    let wrong = |reason: String| {
        PullError::Wrong(format!("`{address}` is not the address of a model: {reason}"))
    };
    let parsed: Url = address.parse().map_err(|err| wrong(format!("{err}")))?;
    let file = parsed.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    if !is_file_name(file) {
        return Err(wrong("it does not end with a file name such as `model.gguf`".to_owned()));
    }
    let file = file.to_owned();
    if url.is_none() {
        let sha256 = given.or_else(|| Some(MODEL_SHA256.to_owned()));
        return Ok(Offer {
            url: parsed,
            file,
            bytes: Some(MODEL_BYTES),
            licence: Some(LICENCE),
            sha256,
        });
    }
    let client = download::build_client(&address)?;
    match download::request_file_info(&client, &parsed).await? {
        HeadResult::Info(info) => {
            let sha256 = given.or(info.sha256);
            Ok(Offer { url: parsed, file, bytes: info.bytes, licence: None, sha256 })
        }
        HeadResult::Status(status) => {
            Err(PullError::Missing(format!("there is no model at {address} ({status})")))
        }
    }
}

pub fn find_downloaded(models: &Path) -> Option<(Downloaded, PathBuf)> {
    let folder = models.join(PLANNER_MODEL);
    let note = fs::read(folder.join(NOTE_FILE)).ok()?;
    let downloaded: Downloaded = serde_json::from_slice(&note).ok()?;
    let path = folder.join(&downloaded.file);
    (is_file_name(&downloaded.file) && path.is_file()).then_some((downloaded, path))
}

/// Downloads a model and replaces the previous model. Returns `false` if the model is downloaded
/// already.
pub async fn pull(
    offer: &Offer,
    models: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<bool, PullError> {
    let folder = models.join(PLANNER_MODEL);
    let new = Downloaded {
        file: offer.file.clone(),
        url: offer.url.to_string(),
        sha256: offer.sha256.clone(),
    };
    let old = find_downloaded(models).map(|(old, _)| old);
    if old.as_ref() == Some(&new) {
        return Ok(false);
    }
    let disk = |err: std::io::Error| PullError::disk_error(&folder, &err);
    fs::create_dir_all(&folder).map_err(disk)?;
    // The old model stays usable until the new model is checked.
    let path = folder.join(format!("{UNCHECKED_PREFIX}{}", new.file));
    if path.is_file() {
        fs::remove_file(&path).map_err(disk)?;
    }
    let part = folder.join(format!("{UNCHECKED_PREFIX}{}.part", new.file));
    // Without a checksum, Faber could not detect that the local part belongs to another file of
    // this name.
    if offer.sha256.is_none() && part.is_file() {
        fs::remove_file(&part).map_err(disk)?;
    }
    let client = download::build_client(offer.url.as_str())?;
    let sha256 = offer.sha256.as_deref();
    let wanted = DownloadRequest { url: offer.url.clone(), name: &offer.file, sha256 };
    download::fetch_file(&client, &wanted, &path, progress).await?;
    if !begins_with_magic(&path) {
        fs::remove_file(&path).map_err(disk)?;
        return Err(PullError::Wrong(format!(
            "{} is not a model in GGUF, so it was not kept",
            offer.url
        )));
    }
    fs::rename(&path, folder.join(&new.file)).map_err(disk)?;
    let part = folder.join(format!("{NOTE_FILE}.part"));
    fs::write(&part, serde_json::to_vec(&new).unwrap_or_default()).map_err(disk)?;
    fs::rename(&part, folder.join(NOTE_FILE)).map_err(disk)?;
    if let Some(old) = old.filter(|old| old.file != new.file) {
        // Ignores the error, because a file that remains only wastes disk space.
        let _ = fs::remove_file(folder.join(old.file));
    }
    Ok(true)
}

fn begins_with_magic(path: &Path) -> bool {
    let mut start = [0; GGUF_MAGIC.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == GGUF_MAGIC
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_gguf = name.to_ascii_lowercase().ends_with(".gguf");
    is_gguf && name.len() <= 200 && !name.starts_with('.') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        body::Bytes,
        http::{HeaderMap, StatusCode},
        response::IntoResponse,
        routing::get,
    };
    use sha2::Digest as _;
    use shared::hex::to_hex;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::*;

    const TEST_MODEL: &[u8] = b"GGUF and the weights";
    const OTHER_SHA256: &str = "1b3a58ee1cfe4cbd09da7bbd3f7f8c1c0b1c04a7d5a30e33e0a1bd1dbd0b7a6e";

    async fn send_model(headers: HeaderMap) -> impl IntoResponse {
        let range = headers.get("range").and_then(|range| range.to_str().ok());
        let from =
            range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        match from {
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", TEST_MODEL.len() - 1, TEST_MODEL.len());
                let part = Bytes::from_static(&TEST_MODEL[from..]);
                (StatusCode::PARTIAL_CONTENT, [("content-range", range)], part).into_response()
            }
            None => Bytes::from_static(TEST_MODEL).into_response(),
        }
    }

    async fn serve_model() -> (String, JoinSet<()>) {
        let app = Router::new()
            .route("/m.gguf", get(send_model))
            .route("/text.gguf", get(|| async { "<html>" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        (address, tasks)
    }

    fn sha256_of(bytes: &[u8]) -> String {
        to_hex(sha2::Sha256::digest(bytes))
    }

    #[tokio::test]
    async fn a_model_is_checked_and_downloaded_once() {
        let ((hub, _tasks), models) = (serve_model().await, tempfile::tempdir().unwrap());
        let url = format!("{hub}/m.gguf");
        let offer = find_offer("", Some(&url), Some(&sha256_of(TEST_MODEL))).await.unwrap();
        assert_eq!((offer.bytes, offer.licence), (Some(20), None));
        assert!(pull(&offer, models.path(), &mut |_| ()).await.unwrap());
        let (downloaded, path) = find_downloaded(models.path()).unwrap();
        assert_eq!((downloaded.url, fs::read(path).unwrap()), (url.clone(), TEST_MODEL.to_vec()));
        assert!(
            !pull(&offer, models.path(), &mut |_| ()).await.unwrap(),
            "the model is already downloaded"
        );

        let other = find_offer("", Some(&url), Some(OTHER_SHA256)).await.unwrap();
        let err = pull(&other, models.path(), &mut |_| ()).await.unwrap_err();
        assert!(err.to_string().contains("has the checksum"), "{err}");
        assert_eq!(
            find_downloaded(models.path()).unwrap().0.sha256,
            offer.sha256,
            "the old model stays"
        );
    }

    #[tokio::test]
    async fn an_interrupted_download_resumes() {
        let ((hub, _tasks), models) = (serve_model().await, tempfile::tempdir().unwrap());
        let url = format!("{hub}/m.gguf");
        let folder = models.path().join(PLANNER_MODEL);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("new-m.gguf.part"), &TEST_MODEL[..7]).unwrap();
        let offer = find_offer("", Some(&url), Some(&sha256_of(TEST_MODEL))).await.unwrap();
        let mut ends = Vec::new();
        pull(&offer, models.path(), &mut |progress| ends.push(progress.bytes)).await.unwrap();
        assert_eq!(fs::read(folder.join("m.gguf")).unwrap(), TEST_MODEL);
        assert!(ends.iter().all(|bytes| *bytes == 20), "{ends:?}");
    }

    #[tokio::test]
    async fn a_download_without_a_checksum_begins_anew() {
        let ((hub, _tasks), models) = (serve_model().await, tempfile::tempdir().unwrap());
        let folder = models.path().join(PLANNER_MODEL);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("new-m.gguf.part"), "GGUF of another model").unwrap();
        let offer = find_offer("", Some(&format!("{hub}/m.gguf")), None).await.unwrap();
        pull(&offer, models.path(), &mut |_| ()).await.unwrap();
        assert_eq!(fs::read(folder.join("m.gguf")).unwrap(), TEST_MODEL);
    }

    #[tokio::test]
    async fn a_file_that_is_no_model_is_refused() {
        let ((hub, _tasks), models) = (serve_model().await, tempfile::tempdir().unwrap());
        let offer = find_offer("", Some(&format!("{hub}/text.gguf")), None).await.unwrap();
        let err = pull(&offer, models.path(), &mut |_| ()).await.unwrap_err();
        assert!(err.to_string().contains("not a model in GGUF"), "{err}");
        assert_eq!(find_downloaded(models.path()), None);
        for url in ["x", "http://a/b", "http://a/.gguf", "http://a/none.gguf"] {
            let url = url.replace("http://a", &hub);
            assert!(find_offer("", Some(&url), None).await.is_err(), "{url}");
        }
        let offer = find_offer("http://hub/", None, None).await.unwrap();
        assert_eq!((offer.bytes, offer.sha256.as_deref()), (Some(MODEL_BYTES), Some(MODEL_SHA256)));
        assert!(find_offer("http://hub", None, Some("12")).await.is_err());
    }
}
