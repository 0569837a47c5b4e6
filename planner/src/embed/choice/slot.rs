//! One source among those that are wanted, and how it does.

use std::{sync::Arc, time::Duration};

use shared::store::Vectors;
use tokio::time::Instant;

use super::{Embedding, PassedOver, Source};
use crate::embed::{
    EmbedError, Embedder,
    kept::{Kept, Recent},
    local::Local,
    server::Server,
};

/// For so long a source is passed over that failed; twice as long each time that it fails again at
/// once.
const PAUSE: Duration = Duration::from_mins(1);
/// The longest that it is passed over.
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

/// A source, and how it does.
#[derive(Debug)]
pub(super) struct Slot {
    source: Source,
    opened: Option<Opened>,
    /// Why it is not used, as long as it is not.
    away: Option<Away>,
    /// For how long it was passed over the last time, if ever.
    pause: Option<Duration>,
    /// What was said of it in the log.
    told: Option<EmbedError>,
}

/// What came of a source. It stays when the source goes away and comes back, and so does all that is
/// known by its vectors.
#[derive(Debug)]
struct Opened {
    embedder: Arc<dyn Embedder>,
    embedding: Embedding,
    /// Since when it has worked.
    since: Instant,
}

#[derive(Debug)]
struct Away {
    why: EmbedError,
    /// When it is tried again, if that is of any use.
    again: Option<Instant>,
}

impl Slot {
    pub(super) fn new(source: Source) -> Self {
        Self { source, opened: None, away: None, pause: None, told: None }
    }

    /// Returns which source it is, for people.
    pub(super) fn name(&self) -> String {
        self.source.to_string()
    }

    /// Returns what came of it, also where it does not work now.
    pub(super) fn embedding(&self) -> Option<&Embedding> {
        self.opened.as_ref().map(|it| &it.embedding)
    }

    /// Returns whether it works, as far as is known.
    pub(super) fn is_ready(&self) -> bool {
        self.opened.is_some() && self.away.is_none()
    }

    /// Returns when it is tried again, if it does not work and that is of any use.
    pub(super) fn again(&self) -> Option<Instant> {
        self.away.as_ref()?.again
    }

    /// Returns why it is not used, if it is not.
    pub(super) fn passed_over(&self) -> Option<PassedOver> {
        let why = self.away.as_ref()?.why.clone();
        Some(PassedOver { source: self.name(), why })
    }

    /// Returns whether it works; one that has not been tried, or not for long enough, is tried.
    pub(super) async fn works(&mut self, store: &Arc<dyn Vectors>) -> bool {
        let may_try = match &self.away {
            None if self.opened.is_some() => return true,
            None => true,
            Some(Away { again, .. }) => again.is_some_and(|again| again <= Instant::now()),
        };
        if !may_try {
            return false;
        }
        match self.open(store).await {
            Ok(()) => self.away = None,
            Err(why) => self.pass_over(why),
        }
        self.is_ready()
    }

    async fn open(&mut self, store: &Arc<dyn Vectors>) -> Result<(), EmbedError> {
        if let Some(opened) = &mut self.opened {
            opened.embedder.probe().await?;
            opened.since = Instant::now();
            return Ok(());
        }
        let embedder: Arc<dyn Embedder> = match &self.source {
            Source::Directory(path) => Arc::new(Local::open(path).await?),
            Source::Builtin => Arc::new(Local::builtin().await?),
            Source::Server(config) => Arc::new(Server::new(config)?),
            Source::Own(embedder) => Arc::clone(embedder),
            Source::Wrong(why) => {
                let (model, why) = ("embedding".to_owned(), why.clone());
                return Err(EmbedError::Model { model, why });
            }
        };
        embedder.probe().await?;
        let embedding = Embedding {
            source: self.name(),
            texts: Arc::new(Kept::new(Arc::clone(&embedder), Arc::clone(store))),
            queries: Arc::new(Recent::new(Arc::clone(&embedder))),
        };
        self.opened = Some(Opened { embedder, embedding, since: Instant::now() });
        Ok(())
    }

    /// Passes over a source that failed: for a while, or for good where nothing can come of it.
    pub(super) fn pass_over(&mut self, why: EmbedError) {
        let now = Instant::now();
        let worked = match (&self.opened, &self.away) {
            (Some(opened), None) => now.saturating_duration_since(opened.since),
            _ => Duration::ZERO,
        };
        let pause = match self.pause {
            Some(last) if worked < last => (last * 2).min(LONGEST_PAUSE),
            _ => {
                self.told = None;
                PAUSE
            }
        };
        self.pause = Some(pause);
        let is_broken = matches!(why, EmbedError::Model { .. });
        self.away = Some(Away { why, again: (!is_broken).then(|| now + pause) });
    }

    /// Says in the log why it is not used, if it is not, and what is.
    pub(super) fn tell(&mut self, instead: Option<&str>) {
        if let Some(PassedOver { why, .. }) = self.passed_over() {
            self.tell_of(&why, instead);
        }
    }

    /// Says in the log what is wrong with it, unless that was said already.
    pub(super) fn tell_of(&mut self, why: &EmbedError, instead: Option<&str>) {
        if self.told.as_ref() != Some(why) {
            let instead = instead.unwrap_or("tools are chosen by words alone");
            tracing::warn!(err = %why, %instead, "{} is not used", self.source);
            self.told = Some(why.clone());
        }
    }
}
