//! One configured source and its state.

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

/// The pause after a failure. It doubles after each further one.
const PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

#[derive(Debug)]
pub(super) struct Slot {
    source: Source,
    opened: Option<Opened>,
    /// The last failure, while the source is skipped.
    away: Option<Away>,
    pause: Option<Duration>,
    told: Option<EmbedError>,
}

/// An opened source. It stays when the source fails and comes back, with all its vectors.
#[derive(Debug)]
struct Opened {
    embedder: Arc<dyn Embedder>,
    embedding: Embedding,
    /// The time since which it has worked.
    since: Instant,
}

#[derive(Debug)]
struct Away {
    why: EmbedError,
    /// The time of the next attempt. None if a retry cannot help.
    again: Option<Instant>,
}

impl Slot {
    pub(super) fn new(source: Source) -> Self {
        Self { source, opened: None, away: None, pause: None, told: None }
    }

    pub(super) fn name(&self) -> String {
        self.source.to_string()
    }

    pub(super) fn embedding(&self) -> Option<&Embedding> {
        self.opened.as_ref().map(|opened| &opened.embedding)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.opened.is_some() && self.away.is_none()
    }

    pub(super) fn again(&self) -> Option<Instant> {
        self.away.as_ref()?.again
    }

    pub(super) fn passed_over(&self) -> Option<PassedOver> {
        let why = self.away.as_ref()?.why.clone();
        Some(PassedOver { source: self.name(), why })
    }

    /// Returns whether the source works. Tries it if it was not tried recently.
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

    /// Skips a failed source: for a while, or for good if a retry cannot help.
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

    pub(super) fn tell(&mut self, instead: Option<&str>) {
        if let Some(PassedOver { why, .. }) = self.passed_over() {
            self.tell_of(&why, instead);
        }
    }

    /// Logs an error of the source, unless the last entry says the same.
    pub(super) fn tell_of(&mut self, why: &EmbedError, instead: Option<&str>) {
        if self.told.as_ref() != Some(why) {
            let instead = instead.unwrap_or("tools are chosen by words alone");
            tracing::warn!(err = %why, %instead, "{} is not used", self.source);
            self.told = Some(why.clone());
        }
    }
}
