//! Which embedder is used: the first of those that are wanted that works.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use shared::store::Vectors;
use tokio::{sync::Mutex, time::Instant};

use super::{
    EmbedError, Embedder,
    kept::{Kept, Recent},
    local::Local,
    server::{Server, ServerConfig},
};

/// After so long a server that did not answer is asked again.
const AGAIN: Duration = Duration::from_mins(1);

/// Where vectors may come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A model in a directory.
    Directory(PathBuf),
    /// A server.
    Server(ServerConfig),
    /// The encoder that is part of this program.
    Builtin,
    /// One that whoever uses this library brings along.
    Own(Arc<dyn Embedder>),
    /// Something that is wanted and cannot be, and why.
    Wrong(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "the model in `{}`", path.display()),
            Self::Server(it) => write!(f, "the model `{}` at {}", it.model, it.base_url),
            Self::Builtin => f.write_str("the built-in encoder"),
            Self::Own(it) => write!(f, "the program's own model `{}`", it.model()),
            Self::Wrong(_) => f.write_str("the embedding model"),
        }
    }
}

/// The embedders of a process. Nothing is opened before it is needed.
#[derive(Debug)]
pub struct Embedders {
    wanted: Vec<Source>,
    store: Arc<dyn Vectors>,
    chosen: Mutex<Option<Chosen>>,
}

/// What was chosen, and when to choose again.
#[derive(Debug)]
struct Chosen {
    choice: Arc<Choice>,
    again: Option<Instant>,
}

/// The embedder that is used, and those before it that are not.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The embedder; nothing where none works, and tools are chosen by their words alone.
    pub embedding: Option<Embedding>,
    /// What was wanted and does not work, and why.
    pub passed_over: Vec<PassedOver>,
}

/// One model, for what is embedded once and for what is asked.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Where the model comes from, for people.
    pub source: String,
    /// For descriptions and examples: what it makes is kept in the store.
    pub texts: Arc<dyn Embedder>,
    /// For queries: only the latest are remembered.
    pub queries: Arc<dyn Embedder>,
}

/// A source that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Which, for people.
    pub source: String,
    /// Why not, and what to do.
    pub why: EmbedError,
}

impl Embedders {
    /// Wants the first of these that works; what is made of texts is kept in `store`.
    pub fn new(wanted: Vec<Source>, store: Arc<dyn Vectors>) -> Self {
        Self { wanted, store, chosen: Mutex::default() }
    }

    /// Returns the embedder to use now. What is wanted and does not work is said in the log, once.
    pub async fn choose(&self) -> Arc<Choice> {
        let mut chosen = self.chosen.lock().await;
        if let Some(Chosen { choice, again }) = &*chosen
            && again.is_none_or(|again| Instant::now() < again)
        {
            return Arc::clone(choice);
        }
        let choice = Arc::new(self.look().await);
        let before = chosen.take().map_or_else(Vec::new, |it| it.choice.passed_over.clone());
        let next =
            choice.embedding.as_ref().map_or("tools are chosen by words alone", |it| &*it.source);
        for it in choice.passed_over.iter().filter(|it| !before.contains(it)) {
            tracing::warn!(err = %it.why, instead = next, "{} is not used", it.source);
        }
        let is_passing = |it: &PassedOver| matches!(it.why, EmbedError::Unavailable { .. });
        let again = choice.passed_over.iter().any(is_passing).then(|| Instant::now() + AGAIN);
        *chosen = Some(Chosen { choice: Arc::clone(&choice), again });
        choice
    }

    /// Says that the embedder failed: the next choice looks at all of them again.
    pub async fn forget(&self) {
        if let Some(chosen) = &mut *self.chosen.lock().await {
            chosen.again = Some(Instant::now());
        }
    }

    async fn look(&self) -> Choice {
        let mut passed_over = Vec::new();
        for source in &self.wanted {
            match open(source).await {
                Ok(embedder) => {
                    let store = Arc::clone(&self.store);
                    let embedding = Embedding {
                        source: source.to_string(),
                        texts: Arc::new(Kept::new(Arc::clone(&embedder), store)),
                        queries: Arc::new(Recent::new(embedder)),
                    };
                    return Choice { embedding: Some(embedding), passed_over };
                }
                Err(why) => passed_over.push(PassedOver { source: source.to_string(), why }),
            }
        }
        Choice { embedding: None, passed_over }
    }
}

async fn open(source: &Source) -> Result<Arc<dyn Embedder>, EmbedError> {
    match source {
        Source::Directory(path) => Ok(Arc::new(Local::open(path).await?)),
        Source::Builtin => Ok(Arc::new(Local::builtin().await?)),
        Source::Server(config) => {
            let server = Server::new(config)?;
            server.probe().await?;
            Ok(Arc::new(server))
        }
        Source::Own(embedder) => Ok(Arc::clone(embedder)),
        Source::Wrong(why) => {
            Err(EmbedError::Model { model: "embedding".to_owned(), why: why.clone() })
        }
    }
}
