use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    path::Path,
    time::Duration,
};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, RANGE},
    redirect::Policy,
};
use sha2::{Digest, Sha256};
use shared::hex::to_hex;
use tokio::time::timeout;

use super::{Progress, PullError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_READ_PAUSE: Duration = Duration::from_secs(30);
/// Maximum size of a file. Larger models are not supported.
const MAX_FILE_BYTES: u64 = 8 << 30;
const MAX_REDIRECTS: usize = 5;
const REPORT_INTERVAL_BYTES: u64 = 1 << 20;
const USER_AGENT_NAME: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));

pub(crate) struct DownloadRequest<'a> {
    pub(crate) url: Url,
    pub(crate) name: &'a str,
    pub(crate) sha256: Option<&'a str>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileInfo {
    pub(crate) revision: Option<String>,
    pub(crate) sha256: Option<String>,
    pub(crate) bytes: Option<u64>,
}

pub(crate) enum HeadResult {
    Info(FileInfo),
    Status(StatusCode),
}

pub(crate) fn build_client(place: &str) -> Result<Client, PullError> {
    // Ignores the error, because the process may already have a cryptography provider, which is
    // then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The hub sends the metadata with its redirect, so this module follows redirects itself.
    let client = Client::builder().user_agent(USER_AGENT_NAME).connect_timeout(CONNECT_TIMEOUT);
    let client = client.redirect(Policy::none()).no_gzip().build();
    client.map_err(|err| unreachable_error(place, &err))
}

pub(crate) async fn request_file_info(client: &Client, url: &Url) -> Result<HeadResult, PullError> {
    let response = send_request(client.head(url.clone()), url).await?;
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        let headers = read_headers(response.headers());
        // Ignores the length of a redirect, because it is not the length of the file.
        let length = response.headers().get(CONTENT_LENGTH).filter(|_| status.is_success());
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        return Ok(HeadResult::Info(FileInfo { bytes: headers.bytes.or(length), ..headers }));
    }
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(unexpected_status_error(url, status));
    }
    Ok(HeadResult::Status(status))
}

fn read_headers(headers: &HeaderMap) -> FileInfo {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(|value| value.trim_matches('"'));
    let is_hash =
        |hash: &&str, len| hash.len() == len && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let revision = text("x-repo-commit").filter(|hash| is_hash(hash, 40));
    // Ignores a tag of another length, because the tag is a SHA-256 only for large files.
    let sha256 = text("x-linked-etag").filter(|hash| is_hash(hash, 64));
    FileInfo {
        revision: revision.map(ToOwned::to_owned),
        sha256: sha256.map(str::to_ascii_lowercase),
        bytes: text("x-linked-size").and_then(|size| size.parse().ok()),
    }
}

pub(crate) async fn fetch_file(
    client: &Client,
    request: &DownloadRequest<'_>,
    path: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), PullError> {
    if path.is_file() {
        return Ok(());
    }
    let disk = |err| PullError::disk_error(path, &err);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(disk)?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let present_bytes = fs::metadata(part).map_or(0, |metadata| metadata.len());
    let mut response = request_from_offset(client, &request.url, present_bytes).await?;
    let is_resumed = response.status() == StatusCode::PARTIAL_CONTENT
        && parse_range_start(response.headers()) == Some(present_bytes);
    if !is_resumed && response.status() == StatusCode::PARTIAL_CONTENT {
        return Err(PullError::Wrong(format!(
            "{} sent a different part of the file than requested: try again",
            request.url
        )));
    }
    let mut bytes = if is_resumed { present_bytes } else { 0 };
    let of = response.content_length().map(|rest| rest + bytes);
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).append(is_resumed).truncate(!is_resumed);
    let mut file = options.open(part).map_err(disk)?;
    let mut reported = None;
    while let Some(chunk) = timeout(MAX_READ_PAUSE, response.chunk())
        .await
        .map_err(|_| no_data_error(&request.url))?
        .map_err(|err| unreachable_error(&host_name(&request.url), &err))?
    {
        file.write_all(&chunk).map_err(disk)?;
        bytes += chunk.len() as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(PullError::Wrong(format!(
                "`{}` has more than {MAX_FILE_BYTES} bytes",
                request.name
            )));
        }
        if reported.is_none_or(|last| bytes >= last + REPORT_INTERVAL_BYTES) {
            reported = Some(bytes);
            progress(Progress { file: request.name.to_owned(), bytes, of });
        }
    }
    file.sync_all().map_err(disk)?;
    drop(file);
    progress(Progress { file: request.name.to_owned(), bytes, of: Some(bytes) });
    verify_file(request, part)?;
    fs::rename(part, path).map_err(disk)
}

async fn request_from_offset(client: &Client, url: &Url, from: u64) -> Result<Response, PullError> {
    let mut current = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = client.get(current.clone());
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let response = send_request(request, &current).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::RANGE_NOT_SATISFIABLE && from > 0 {
            // The local part is complete or belongs to another file, so the whole file is
            // requested.
            let request = client.get(current.clone());
            let response = send_request(request, &current).await?;
            return if response.status().is_success() {
                Ok(response)
            } else {
                Err(unexpected_status_error(&current, response.status()))
            };
        }
        let location = response.headers().get(reqwest::header::LOCATION);
        let location = location
            .and_then(|location| location.to_str().ok())
            .filter(|_| status.is_redirection());
        let Some(location) = location else {
            return Err(unexpected_status_error(&current, status));
        };
        let next = current.join(location);
        let next = next.map_err(|err| {
            PullError::Wrong(format!("{current} redirects to an invalid address ({err})"))
        })?;
        if current.scheme() == "https" && next.scheme() != "https" {
            return Err(PullError::Wrong(format!(
                "{current} redirects to an address without encryption: use another hub"
            )));
        }
        current = next;
    }
    Err(PullError::Wrong(format!("{url} redirects more than {MAX_REDIRECTS} times")))
}

fn parse_range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

async fn send_request(request: reqwest::RequestBuilder, url: &Url) -> Result<Response, PullError> {
    let answered = timeout(MAX_READ_PAUSE, request.send()).await.map_err(|_| no_data_error(url))?;
    answered.map_err(|err| unreachable_error(&host_name(url), &err))
}

fn verify_file(request: &DownloadRequest<'_>, part: &Path) -> Result<(), PullError> {
    let Some(want) = request.sha256 else { return Ok(()) };
    let disk = |err| PullError::disk_error(part, &err);
    let mut file = File::open(part).map_err(disk)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut chunk).map_err(disk)? {
            0 => break,
            read => hash.update(&chunk[..read]),
        }
    }
    let is = to_hex(hash.finalize());
    if is == want {
        return Ok(());
    }
    fs::remove_file(part).map_err(disk)?;
    Err(PullError::Wrong(format!(
        "`{}` has the checksum {is}, not {want}, and was not kept: try again",
        request.name
    )))
}

fn host_name(url: &Url) -> String {
    url.host_str().unwrap_or("the server").to_owned()
}

fn no_data_error(url: &Url) -> PullError {
    let reason = format!("it sent no data for {} s", MAX_READ_PAUSE.as_secs());
    PullError::Unreachable { place: host_name(url), reason }
}

fn unexpected_status_error(url: &Url, status: StatusCode) -> PullError {
    PullError::Unreachable { place: host_name(url), reason: format!("{url} answers {status}") }
}

fn unreachable_error(place: &str, err: &reqwest::Error) -> PullError {
    let mut cause: &dyn std::error::Error = err;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    PullError::Unreachable { place: place.to_owned(), reason: cause.to_string() }
}
