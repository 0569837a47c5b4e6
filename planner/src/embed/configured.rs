use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use shared::store::Vectors;
use tokio::sync::OnceCell;

use super::{
    EmbedError, Embedder,
    caching::{CachingEmbedder, RecentEmbedder},
    local::Local,
    server::{Server, ServerConfig},
};

#[derive(Clone, Debug)]
pub enum Source {
    Directory(PathBuf),
    Server(ServerConfig),
    Builtin,
    Own(Arc<dyn Embedder>),
    Invalid(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "the model in `{}`", path.display()),
            Self::Server(server) => {
                write!(f, "the model `{}` at {}", server.model, server.base_url)
            }
            Self::Builtin => f.write_str("the built-in encoder"),
            Self::Own(embedder) => write!(f, "the program's own model `{}`", embedder.model()),
            Self::Invalid(_) => f.write_str("the embedding model"),
        }
    }
}

impl Source {
    async fn connect(&self) -> Result<Arc<dyn Embedder>, EmbedError> {
        Ok(match self {
            Self::Directory(path) => Arc::new(Local::open(path).await?),
            Self::Builtin => Arc::new(Local::open_builtin_model().await?),
            Self::Server(config) => Arc::new(Server::new(config)?),
            Self::Own(embedder) => Arc::clone(embedder),
            Self::Invalid(reason) => {
                let (model, reason) = ("embedding".to_owned(), reason.clone());
                return Err(EmbedError::Model { model, reason });
            }
        })
    }
}

#[derive(Clone, Debug)]
pub struct Embedding {
    pub source: String,
    /// The embedder of descriptions and examples. Its vectors are stored.
    pub texts: Arc<dyn Embedder>,
    /// The embedder of queries. Only the latest vectors are kept in memory.
    pub queries: Arc<dyn Embedder>,
}

/// The configured embedder, if there is one. It is opened on its first use.
#[derive(Debug)]
pub struct ConfiguredEmbedder {
    store: Arc<dyn Vectors>,
    source: Option<Source>,
    opened: OnceCell<OpenedEmbedder>,
}

#[derive(Debug)]
struct OpenedEmbedder {
    embedder: Arc<dyn Embedder>,
    embedding: Embedding,
    /// `true` if the last probe or use succeeded.
    is_working: AtomicBool,
}

impl ConfiguredEmbedder {
    /// Makes an embedder that stores vectors in `store`. Without a source, tools are selected by
    /// words.
    pub fn new(source: Option<Source>, store: Arc<dyn Vectors>) -> Self {
        Self { store, source, opened: OnceCell::new() }
    }

    /// Returns the embedder, or `None` if none is configured. Each call after a failure tries
    /// again, so a repaired embedder needs no restart.
    pub async fn open(&self) -> Result<Option<Embedding>, EmbedError> {
        let Some(source) = &self.source else { return Ok(None) };
        let opened = self.opened.get_or_try_init(|| self.connect(source)).await?;
        if !opened.is_working.load(Ordering::Relaxed) {
            opened.embedder.probe().await?;
            opened.is_working.store(true, Ordering::Relaxed);
        }
        Ok(Some(opened.embedding.clone()))
    }

    /// Marks the embedder as failed, so that it is probed before its next use. An error about a
    /// single text does not mark it.
    pub fn report_failure(&self, error: &EmbedError) {
        if let Some(opened) = self.opened.get()
            && !matches!(error, EmbedError::Text { .. })
        {
            opened.is_working.store(false, Ordering::Relaxed);
        }
    }

    async fn connect(&self, source: &Source) -> Result<OpenedEmbedder, EmbedError> {
        let embedder = source.connect().await?;
        let embedding = Embedding {
            source: source.to_string(),
            texts: Arc::new(CachingEmbedder::new(Arc::clone(&embedder), Arc::clone(&self.store))),
            queries: Arc::new(RecentEmbedder::new(Arc::clone(&embedder))),
        };
        Ok(OpenedEmbedder { embedder, embedding, is_working: AtomicBool::new(false) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;
    use shared::store::memory::Memory;

    use super::*;

    #[derive(Debug, Default)]
    struct FlakyEmbedder {
        is_unavailable: AtomicBool,
        probes: AtomicUsize,
    }

    #[async_trait]
    impl Embedder for FlakyEmbedder {
        fn model(&self) -> &'static str {
            "flaky"
        }

        async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(texts.iter().map(|_| vec![1.0]).collect())
        }

        async fn probe(&self) -> Result<(), EmbedError> {
            self.probes.fetch_add(1, Ordering::SeqCst);
            if self.is_unavailable.load(Ordering::SeqCst) { Err(unavailable()) } else { Ok(()) }
        }
    }

    fn unavailable() -> EmbedError {
        EmbedError::Unavailable { url: "u".to_owned(), reason: "it is away".to_owned() }
    }

    fn configured(source: Option<Source>) -> ConfiguredEmbedder {
        ConfiguredEmbedder::new(source, Arc::new(Memory::new()))
    }

    #[tokio::test]
    async fn an_embedder_is_probed_before_its_first_use_and_after_a_failure() {
        let flaky = Arc::new(FlakyEmbedder {
            is_unavailable: AtomicBool::new(true),
            ..FlakyEmbedder::default()
        });
        let configured = configured(Some(Source::Own(flaky.clone())));
        let probes = || flaky.probes.load(Ordering::SeqCst);
        for _ in 0..2 {
            assert_eq!(configured.open().await.unwrap_err(), unavailable());
        }
        flaky.is_unavailable.store(false, Ordering::SeqCst);
        let first = configured.open().await.unwrap().unwrap();
        assert_eq!(first.source, "the program's own model `flaky`");
        configured.open().await.unwrap();
        configured
            .report_failure(&EmbedError::Text { url: "u".to_owned(), reason: "long".to_owned() });
        configured.open().await.unwrap();
        assert_eq!(probes(), 3, "a working embedder is not probed");

        flaky.is_unavailable.store(true, Ordering::SeqCst);
        configured.report_failure(&unavailable());
        assert_eq!(configured.open().await.unwrap_err(), unavailable());
        flaky.is_unavailable.store(false, Ordering::SeqCst);
        let again = configured.open().await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&first.queries, &again.queries), "vectors in memory are kept");
    }

    #[tokio::test]
    async fn a_wrong_source_is_an_error_and_no_source_is_none() {
        let wrong = configured(Some(Source::Invalid("it is not set".to_owned())));
        assert!(wrong.open().await.unwrap_err().to_string().contains("it is not set"));
        assert!(configured(None).open().await.unwrap().is_none());
    }
}
