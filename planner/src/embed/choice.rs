//! The choice of an embedder: the first configured source that works.

mod slot;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use shared::store::Vectors;
use tokio::time::Instant;

use self::slot::Slot;
use super::{EmbedError, Embedder, server::ServerConfig};

#[derive(Clone, Debug)]
pub enum Source {
    Directory(PathBuf),
    Server(ServerConfig),
    Builtin,
    /// An embedder of a program that uses this library.
    Own(Arc<dyn Embedder>),
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

/// Each embedder is opened on its first use.
#[derive(Debug)]
pub struct Embedders {
    store: Arc<dyn Vectors>,
    /// The configured sources, in order. A holder of the lock may wait for a server.
    slots: tokio::sync::Mutex<Vec<Slot>>,
    chosen: Mutex<Option<Chosen>>,
}

/// The current choice, and the time of the next one.
#[derive(Clone, Debug)]
struct Chosen {
    choice: Arc<Choice>,
    again: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The embedder. Without one, tools are selected by words.
    pub embedding: Option<Embedding>,
    pub passed_over: Vec<PassedOver>,
}

/// One model: an embedder for stored texts, and one for queries.
#[derive(Clone, Debug)]
pub struct Embedding {
    pub source: String,
    /// For descriptions and examples. Its vectors are stored.
    pub texts: Arc<dyn Embedder>,
    /// For queries. Only the latest vectors are kept in memory.
    pub queries: Arc<dyn Embedder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    pub source: String,
    pub why: EmbedError,
}

impl Embedding {
    /// Returns whether both are clones of one embedding.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.texts, &other.texts)
    }
}

impl Embedders {
    /// Uses the first of these sources that works, and keeps its vectors in `store`.
    pub fn new(wanted: Vec<Source>, store: Arc<dyn Vectors>) -> Self {
        let slots = wanted.into_iter().map(Slot::new).collect::<Vec<_>>().into();
        Self { store, slots, chosen: Mutex::default() }
    }

    /// Returns the embedder to use now. Logs each skipped source once.
    pub async fn choose(&self) -> Arc<Choice> {
        let mut slots = match self.current_choice() {
            Some(Chosen { choice, again }) if is_later(again) => return choice,
            // Only one task waits for a source to come back. The others use the current choice.
            Some(Chosen { choice, .. }) => match self.slots.try_lock() {
                Ok(slots) => slots,
                Err(_) => return choice,
            },
            None => self.slots.lock().await,
        };
        if let Some(Chosen { choice, again }) = self.current_choice()
            && is_later(again)
        {
            return choice;
        }
        let found = first_working(&mut slots, 0, &self.store).await;
        let next = found.map(|at| slots[at].name());
        for slot in slots.iter_mut().take(found.unwrap_or(usize::MAX)) {
            slot.tell(next.as_deref());
        }
        self.keep_choice(&slots)
    }

    /// Skips a failed embedder for a while, and returns the next source that works. A source that
    /// only rejected a text is still used for other texts.
    pub async fn instead(&self, failed: &Choice, why: &EmbedError) -> Option<Arc<Choice>> {
        let failed = failed.embedding.as_ref()?;
        let mut slots = self.slots.lock().await;
        let at = slots
            .iter()
            .position(|slot| slot.embedding().is_some_and(|embedding| embedding.is(failed)))?;
        let next = first_working(&mut slots, at + 1, &self.store).await?;
        let name = slots[next].name();
        if matches!(why, EmbedError::Text { .. }) {
            slots[at].tell_of(why, Some(&name));
        } else if slots[at].is_ready() {
            slots[at].pass_over(why.clone());
            slots[at].tell(Some(&name));
            self.keep_choice(&slots);
        }
        Some(Arc::new(describe_choice(&slots, Some(next))))
    }

    fn current_choice(&self) -> Option<Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_choice(&self, slots: &[Slot]) -> Arc<Choice> {
        let at = slots.iter().position(Slot::is_ready);
        let before = &slots[..at.unwrap_or(slots.len())];
        let again = before.iter().filter_map(Slot::again).min();
        let choice = Arc::new(describe_choice(slots, at));
        let kept = Chosen { choice: Arc::clone(&choice), again };
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        choice
    }
}

fn is_later(again: Option<Instant>) -> bool {
    again.is_none_or(|again| Instant::now() < again)
}

/// Returns the place of the first working source at or after `from`.
async fn first_working(slots: &mut [Slot], from: usize, store: &Arc<dyn Vectors>) -> Option<usize> {
    for (at, slot) in slots.iter_mut().enumerate().skip(from) {
        if slot.works(store).await {
            return Some(at);
        }
    }
    None
}

fn describe_choice(slots: &[Slot], used: Option<usize>) -> Choice {
    let before = &slots[..used.unwrap_or(slots.len())];
    Choice {
        embedding: used.and_then(|at| slots[at].embedding().cloned()),
        passed_over: before.iter().filter_map(Slot::passed_over).collect(),
    }
}
