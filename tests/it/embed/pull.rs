//! Downloads of models from a hub, which the test serves with the real files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Path as UrlPath, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use planner::embed::{
    Embedder, Local,
    pull::{PullError, PullLocations, Pulled, Request, list_models, pull},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

use super::model_folder;

/// Checksum of the weights, as the hub states it.
const WEIGHTS_SHA256: &str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";
const COMMIT: &str = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf";

struct Hub {
    files: PathBuf,
    sha256: &'static str,
    /// If set, the hub closes one connection after this number of bytes.
    break_after_bytes: Mutex<Option<usize>>,
    requests: Mutex<Vec<String>>,
}

impl Hub {
    fn new(files: PathBuf) -> Self {
        let (break_after_bytes, requests) = (Mutex::default(), Mutex::default());
        Self { files, sha256: WEIGHTS_SHA256, break_after_bytes, requests }
    }
}

fn send_file(hub_state: &Hub, path: &Path, headers: &HeaderMap) -> Response {
    let Ok(bytes) = fs::read(path) else { return StatusCode::NOT_FOUND.into_response() };
    let range = headers.get(header::RANGE).map(|value| value.to_str().unwrap().to_owned());
    let from = range.as_ref().map_or(0, |range| {
        range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap()
    });
    hub_state
        .requests
        .lock()
        .unwrap()
        .push(format!("{} from {from}", path.file_name().unwrap().display()));
    let len = bytes.len();
    let rest = bytes[from.min(len)..].to_vec();
    let is_large = rest.len() > 1 << 20;
    if let Some(break_after) = hub_state.break_after_bytes.lock().unwrap().take_if(|_| is_large) {
        let parts: Vec<Result<Vec<u8>, std::io::Error>> =
            vec![Ok(rest[..break_after].to_vec()), Err(std::io::Error::other("broken off"))];
        return Body::from_stream(futures::stream::iter(parts)).into_response();
    }
    match from {
        0 => rest.into_response(),
        from if from >= len => StatusCode::RANGE_NOT_SATISFIABLE.into_response(),
        from => {
            let range = format!("bytes {from}-{}/{len}", len - 1);
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], rest).into_response()
        }
    }
}

/// Answers requests for a file. Redirects requests for the weights to another route.
async fn hub(
    State(hub_state): State<Arc<Hub>>,
    UrlPath((owner, model, revision, file)): UrlPath<(String, String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let path = hub_state.files.join(&file);
    if (owner.as_str(), model.as_str()) != ("sentence-transformers", "all-MiniLM-L6-v2")
        || !path.is_file()
    {
        return StatusCode::NOT_FOUND.into_response();
    }
    let expected = if method == Method::HEAD && file == "config.json" { "main" } else { COMMIT };
    assert_eq!(revision, expected, "all files have the same revision");
    let mut response = if file == "model.safetensors" {
        Redirect::temporary(&format!("/elsewhere/{file}")).into_response()
    } else if method == Method::HEAD {
        StatusCode::OK.into_response()
    } else {
        send_file(&hub_state, &path, &headers)
    };
    let headers = response.headers_mut();
    headers.insert("x-repo-commit", COMMIT.parse().unwrap());
    if file == "model.safetensors" {
        headers.insert("x-linked-etag", format!("\"{}\"", hub_state.sha256).parse().unwrap());
    }
    response
}

async fn large_file(
    State(hub_state): State<Arc<Hub>>,
    UrlPath(file): UrlPath<String>,
    headers: HeaderMap,
) -> Response {
    send_file(&hub_state, &hub_state.files.join(file), &headers)
}

async fn serve_hub(hub_state: Hub) -> (String, Arc<Hub>, JoinSet<()>) {
    let hub_state = Arc::new(hub_state);
    let app = Router::new()
        .route("/{owner}/{model}/resolve/{revision}/{*file}", get(hub))
        .route("/elsewhere/{file}", get(large_file))
        .with_state(Arc::clone(&hub_state));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, hub_state, tasks)
}

async fn fetch(name: &str, locations: &PullLocations) -> Result<Pulled, PullError> {
    fetch_request(Request { name, sha256: None }, locations).await
}

async fn fetch_request(
    request: Request<'_>,
    locations: &PullLocations,
) -> Result<Pulled, PullError> {
    let mut last = 0;
    let mut report = |progress: planner::embed::pull::Progress| last = progress.bytes;
    let pulled = pull(request, locations, &mut report).await;
    if let Ok(Pulled { from: Some(_), .. }) = &pulled {
        assert!(last > 80_000_000, "{last} bytes were reported last");
    }
    pulled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_download_of_a_model_is_resumed() {
    let hub_state =
        Hub { break_after_bytes: Mutex::new(Some(3_000_000)), ..Hub::new(model_folder()) };
    let (url, hub_state, _tasks) = serve_hub(hub_state).await;
    let folder = TempDir::new().unwrap();
    let models = folder.path().join("models");
    let locations = PullLocations { hub: url.clone(), models: models.clone() };
    let name = "all-MiniLM-L6-v2";
    let broken = fetch(name, &locations).await.unwrap_err();
    assert!(matches!(broken, PullError::Unreachable { .. }), "{broken}");
    assert!(list_models(&models).is_empty());
    hub_state.requests.lock().unwrap().clear();
    // The length of the received part depends on timing, so the test replaces the part by one of a
    // fixed length.
    let weights = fs::read(model_folder().join("model.safetensors")).unwrap();
    let part = models.join("all-MiniLM-L6-v2.part/model.safetensors.part");
    fs::write(part, &weights[..3_000_000]).unwrap();
    let pulled = fetch(name, &locations).await.unwrap();
    assert_eq!(pulled.path, models.join(name));
    assert!(pulled.from.unwrap().ends_with(&format!("{name} at {COMMIT}")));
    assert!(pulled.model.starts_with("all-MiniLM-L6-v2@"), "{}", pulled.model);
    assert_eq!(*hub_state.requests.lock().unwrap(), ["model.safetensors from 3000000"]);
    assert_eq!(list_models(&models), [name]);
    let opened = Local::open(&pulled.path).await.unwrap();
    assert_eq!(opened.model(), pulled.model);
    // At the second call the model is already complete, so Faber requests no file.
    hub_state.requests.lock().unwrap().clear();
    assert_eq!(fetch(name, &locations).await.unwrap().from, None);
    assert!(hub_state.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn weights_with_a_wrong_checksum_are_discarded() {
    // The hub states the right checksum of its file, but the pinned checksum differs.
    let folder = TempDir::new().unwrap();
    let files = folder.path().join("files");
    copy_model_with_other_weights(&files);
    let other = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let hub_state = Hub { sha256: other, ..Hub::new(files) };
    let (url, _place, _tasks) = serve_hub(hub_state).await;
    let models = folder.path().join("models");
    let locations = PullLocations { hub: url, models: models.clone() };
    let name = "all-MiniLM-L6-v2";
    let refused = fetch(name, &locations).await.unwrap_err().to_string();
    let expected = format!("has the checksum {other}, not {WEIGHTS_SHA256}");
    assert!(refused.contains(&expected), "{refused}");
    let part = models.join("all-MiniLM-L6-v2.part");
    assert!(!part.join("model.safetensors.part").exists());
    assert!(!part.join("model.safetensors").exists());

    // A checksum of the caller replaces the pinned checksum, so a wrong one must fail.
    let own = Request { name, sha256: Some(COMMIT) };
    assert!(matches!(fetch_request(own, &locations).await, Err(PullError::Checksum(_))));
    let zeros = "0".repeat(64);
    let own = Request { name, sha256: Some(&zeros) };
    let refused = fetch_request(own, &locations).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("not {zeros}")), "{refused}");

    let missing = fetch("all-MiniLM-L7", &locations).await.unwrap_err();
    assert!(matches!(missing, PullError::Missing(_)), "{missing}");
    let name = fetch("../secret", &locations).await.unwrap_err();
    assert!(matches!(name, PullError::Name(_)), "{name}");
}

fn copy_model_with_other_weights(target: &Path) {
    fs::create_dir(target).unwrap();
    for entry in fs::read_dir(model_folder()).unwrap().map(Result::unwrap) {
        if entry.path().is_file() && entry.file_name() != "model.safetensors" {
            fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
        }
    }
    fs::write(target.join("model.safetensors"), "test").unwrap();
}
