//! Which embedder is used: the first of those that are wanted that works.

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
    store: Arc<dyn Vectors>,
    /// What is wanted, in order. Whoever looks at it may wait for a server meanwhile.
    slots: tokio::sync::Mutex<Vec<Slot>>,
    chosen: Mutex<Option<Chosen>>,
}

/// What was chosen, and when to choose again.
#[derive(Clone, Debug)]
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

impl Embedding {
    /// Returns whether that is the very same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.texts, &other.texts)
    }
}

impl Embedders {
    /// Wants the first of these that works; what is made of texts is kept in `store`.
    pub fn new(wanted: Vec<Source>, store: Arc<dyn Vectors>) -> Self {
        let slots = wanted.into_iter().map(Slot::new).collect::<Vec<_>>().into();
        Self { store, slots, chosen: Mutex::default() }
    }

    /// Returns the embedder to use now. What is wanted and does not work is said in the log, once.
    pub async fn choose(&self) -> Arc<Choice> {
        let mut slots = match self.chosen() {
            Some(Chosen { choice, again }) if is_later(again) => return choice,
            // Only one waits for a source to come back; others go on with what there is.
            Some(Chosen { choice, .. }) => match self.slots.try_lock() {
                Ok(slots) => slots,
                Err(_) => return choice,
            },
            None => self.slots.lock().await,
        };
        if let Some(Chosen { choice, again }) = self.chosen()
            && is_later(again)
        {
            return choice;
        }
        let found = first(&mut slots, 0, &self.store).await;
        let next = found.map(|at| slots[at].name());
        for slot in slots.iter_mut().take(found.unwrap_or(usize::MAX)) {
            slot.tell(next.as_deref());
        }
        self.keep(&slots)
    }

    /// Says that the embedder of a choice failed, and returns what to use instead: the next that
    /// works, if any does. One that failed is passed over for a while; one that only does not take
    /// a text is used for others.
    pub async fn instead(&self, failed: &Choice, why: &EmbedError) -> Option<Arc<Choice>> {
        let failed = failed.embedding.as_ref()?;
        let mut slots = self.slots.lock().await;
        let at = slots.iter().position(|it| it.embedding().is_some_and(|it| it.is(failed)))?;
        let next = first(&mut slots, at + 1, &self.store).await?;
        let name = slots[next].name();
        if matches!(why, EmbedError::Text { .. }) {
            slots[at].tell_of(why, Some(&name));
        } else if slots[at].is_ready() {
            slots[at].pass_over(why.clone());
            slots[at].tell(Some(&name));
            self.keep(&slots);
        }
        Some(Arc::new(choice(&slots, Some(next))))
    }

    fn chosen(&self) -> Option<Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what is used from now on, and returns it.
    fn keep(&self, slots: &[Slot]) -> Arc<Choice> {
        let at = slots.iter().position(Slot::is_ready);
        let before = &slots[..at.unwrap_or(slots.len())];
        let again = before.iter().filter_map(Slot::again).min();
        let choice = Arc::new(choice(slots, at));
        let kept = Chosen { choice: Arc::clone(&choice), again };
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        choice
    }
}

fn is_later(again: Option<Instant>) -> bool {
    again.is_none_or(|again| Instant::now() < again)
}

/// Returns the place of the first source that works, from a place on.
async fn first(slots: &mut [Slot], from: usize, store: &Arc<dyn Vectors>) -> Option<usize> {
    for (at, slot) in slots.iter_mut().enumerate().skip(from) {
        if slot.works(store).await {
            return Some(at);
        }
    }
    None
}

fn choice(slots: &[Slot], used: Option<usize>) -> Choice {
    let before = &slots[..used.unwrap_or(slots.len())];
    Choice {
        embedding: used.and_then(|at| slots[at].embedding().cloned()),
        passed_over: before.iter().filter_map(Slot::passed_over).collect(),
    }
}
