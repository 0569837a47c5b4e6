//! Downloads embedding models from a hub. The model is opened and used once before the directory
//! gets its final name.

pub(crate) mod download;

use std::{
    fs,
    path::{Path, PathBuf},
};

use reqwest::{Client, StatusCode, Url};

use self::download::{DownloadRequest, FileInfo, HeadResult};
use super::{
    EmbedError, Embedder, Local,
    encoder::{CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE},
};

pub const DEFAULT_HUB: &str = "https://huggingface.co";
const DEFAULT_OWNER: &str = "sentence-transformers";
const PINNED_SHA256: [(&str, &str); 1] = [(
    "sentence-transformers/all-MiniLM-L6-v2",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)];
/// The files of a model, each with a flag that is `true` if the file is required.
const MODEL_FILES: [(&str, bool); 6] = [
    (CONFIG_FILE, true),
    (TOKENIZER_FILE, true),
    ("modules.json", false),
    ("sentence_bert_config.json", false),
    ("1_Pooling/config.json", false),
    (WEIGHTS_FILE, true),
];
const MAX_NAME_LEN: usize = 200;

#[derive(Clone, Debug)]
pub struct PullLocations {
    pub hub: String,
    pub models: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub file: String,
    pub bytes: u64,
    pub of: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub path: PathBuf,
    pub model: String,
    pub from: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    #[error(
        "`{0}` is not the name of a model: write it in the form of the hub, such as \
         `all-MiniLM-L6-v2` or `BAAI/bge-small-en-v1.5`"
    )]
    Name(String),
    #[error("`{0}` is not a SHA-256: write its 64 hexadecimal digits")]
    Checksum(String),
    #[error("{place} cannot be reached: {reason}; try again later, and the download resumes")]
    Unreachable { place: String, reason: String },
    #[error("{0}")]
    Missing(String),
    #[error("{0}")]
    Wrong(String),
    #[error("`{path}` cannot be written: {reason}")]
    Disk { path: String, reason: String },
    #[error(transparent)]
    Unusable(#[from] EmbedError),
}

impl PullError {
    pub(crate) fn disk_error(path: &Path, err: &std::io::Error) -> Self {
        Self::Disk { path: path.display().to_string(), reason: err.to_string() }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub name: &'a str,
    pub sha256: Option<&'a str>,
}

impl Request<'_> {
    /// Returns the SHA-256 that the weights must have, even if the hub names another checksum.
    fn pinned_sha256(&self, repository: &str) -> Result<Option<String>, PullError> {
        let Some(sha256) = self.sha256 else {
            let file_info = PINNED_SHA256.iter().find(|(pinned, _)| *pinned == repository);
            return Ok(file_info.map(|(_, sha256)| (*sha256).to_owned()));
        };
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(PullError::Checksum(sha256.to_owned()));
        }
        Ok(Some(sha256.to_ascii_lowercase()))
    }
}

pub async fn pull(
    request: Request<'_>,
    places: &PullLocations,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Pulled, PullError> {
    let name = request.name;
    let repository = repository_name(name)?;
    let pinned = request.pinned_sha256(&repository)?;
    let path = places.models.join(name);
    if path.is_dir() {
        let model = check_model(&path).await?;
        return Ok(Pulled { path, model, from: None });
    }
    let unfinished = places.models.join(format!("{name}.part"));
    fs::create_dir_all(&unfinished).map_err(|err| PullError::disk_error(&unfinished, &err))?;
    let client = download::build_client(&places.hub)?;
    let source = HubRepository { client, hub: &places.hub, repository: &repository, pinned };
    let from = source.download_files(&unfinished, progress).await?;
    let model = match check_model(&unfinished).await {
        Ok(model) => model,
        Err(err) => {
            // Removes the invalid model, because the next pull would take it for a complete
            // download.
            fs::remove_dir_all(&unfinished)
                .map_err(|err| PullError::disk_error(&unfinished, &err))?;
            return Err(err.into());
        }
    };
    fs::rename(&unfinished, &path).map_err(|err| PullError::disk_error(&path, &err))?;
    let model = model.replacen(".part@", "@", 1);
    Ok(Pulled { path, model, from: Some(from) })
}

fn repository_name(name: &str) -> Result<String, PullError> {
    let is_part = |part: &str| {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_fit)
    };
    let parts: Vec<&str> = name.split('/').collect();
    let is_fit = name.len() <= MAX_NAME_LEN && parts.iter().all(|part| is_part(part));
    match (&parts[..], is_fit) {
        ([model], true) => Ok(format!("{DEFAULT_OWNER}/{model}")),
        ([_, _], true) => Ok(name.to_owned()),
        _ => Err(PullError::Name(name.to_owned())),
    }
}

async fn check_model(directory: &Path) -> Result<String, EmbedError> {
    let model = Local::open(directory).await?;
    model.embed(&["hello"]).await?;
    Ok(model.model().to_owned())
}

struct HubRepository<'a> {
    client: Client,
    hub: &'a str,
    repository: &'a str,
    pinned: Option<String>,
}

impl HubRepository<'_> {
    async fn download_files(
        &self,
        directory: &Path,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<String, PullError> {
        let mut revision = "main".to_owned();
        for (file, is_needed) in MODEL_FILES {
            let Some(file_info) = self.find_file(&revision, file, is_needed).await? else {
                continue;
            };
            // All files are taken from the revision that the first answer names.
            revision = file_info.revision.unwrap_or(revision);
            let pinned = self.pinned.as_ref().filter(|_| file == WEIGHTS_FILE);
            let sha256 = pinned.or(file_info.sha256.as_ref()).map(String::as_str);
            let wanted =
                DownloadRequest { url: self.file_url(&revision, file)?, name: file, sha256 };
            download::fetch_file(&self.client, &wanted, &directory.join(file), progress).await?;
        }
        Ok(format!("{}/{} at {revision}", self.hub_url(), self.repository))
    }

    fn hub_url(&self) -> &str {
        self.hub.trim_end_matches('/')
    }

    fn file_url(&self, revision: &str, file: &str) -> Result<Url, PullError> {
        let hub = self.hub_url();
        let address = format!("{hub}/{}/resolve/{revision}/{file}", self.repository);
        address.parse::<Url>().map_err(|err| PullError::Unreachable {
            place: format!("`{hub}`"),
            reason: format!("it is not an address ({err})"),
        })
    }

    /// Asks the hub for a file's revision and checksum. Returns `None` for an optional file that
    /// the repository lacks.
    async fn find_file(
        &self,
        revision: &str,
        file: &str,
        is_needed: bool,
    ) -> Result<Option<FileInfo>, PullError> {
        let url = self.file_url(revision, file)?;
        match download::request_file_info(&self.client, &url).await? {
            HeadResult::Info(file_info) => Ok(Some(file_info)),
            HeadResult::Status(StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED) if !is_needed => {
                Ok(None)
            }
            HeadResult::Status(status) => Err(PullError::Missing(format!(
                "the hub has no `{file}` of `{}` ({status}): check the model's name at {}, and \
                 that the model has weights in `safetensors`",
                self.repository,
                self.hub_url()
            ))),
        }
    }
}

pub fn list_models(models: &Path) -> Vec<String> {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter(|name| repository_name(name).is_ok() && name.strip_suffix(".part").is_none())
            .collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for name in names(models) {
        let path = models.join(&name);
        if path.join(WEIGHTS_FILE).is_file() {
            found.push(name);
            continue;
        }
        let of_owner = names(&path).into_iter();
        let of_owner = of_owner.filter(|name| path.join(name).join(WEIGHTS_FILE).is_file());
        found.extend(of_owner.map(|model| format!("{name}/{model}")));
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_name_is_a_repository_of_the_hub() {
        let of = |name: &str| repository_name(name).map_err(|_| ());
        assert_eq!(of("all-MiniLM-L6-v2").unwrap(), "sentence-transformers/all-MiniLM-L6-v2");
        assert_eq!(of("BAAI/bge-small-en-v1.5").unwrap(), "BAAI/bge-small-en-v1.5");
        let long = "x".repeat(MAX_NAME_LEN + 1);
        for name in ["", "..", "../x", "a/..", "/a", "a/", "a/b/c", "a b", "a\\b", ".a", &long] {
            assert_eq!(of(name), Err(()), "{name}");
        }
    }
}
