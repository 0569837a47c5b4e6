use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::{self, Display},
    sync::Arc,
};

use serde_json::Value;
use shared::{
    sealed::{SealedText, is_sealed, locked_value},
    store::StoreError,
};

use crate::keyring::{Keyring, OpenError, Place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Seal,
    /// Encrypt, but keep values that are already encrypted, because they come from another store.
    SealClear,
    /// Encrypt with the active key what is clear or encrypted with another key. Values that cannot
    /// be decrypted stay as they are, and are counted.
    Rekey,
    /// Neither encrypt nor decrypt, so that values are read as they are stored.
    Keep,
    /// Decrypt, or fail if a key is missing.
    Open,
    /// Decrypt, and show [`locked_value`] if a key is missing.
    Show,
}

pub(crate) struct Edit<'a> {
    ring: &'a Keyring,
    task: Task,
    collection: &'static str,
    document: &'a dyn Display,
    is_changed: Cell<bool>,
    has_locked_values: Cell<bool>,
    rekeyed: RefCell<Tally>,
}

impl fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edit({:?} {} {})", self.task, self.collection, self.document)
    }
}

impl<'a> Edit<'a> {
    pub(crate) fn new(
        ring: &'a Keyring,
        task: Task,
        collection: &'static str,
        document: &'a dyn Display,
    ) -> Self {
        let (is_changed, has_locked_values) = (Cell::new(false), Cell::new(false));
        let rekeyed = RefCell::default();
        Self { ring, task, collection, document, is_changed, has_locked_values, rekeyed }
    }

    pub(crate) fn is_sealing(&self) -> bool {
        matches!(self.task, Task::Seal | Task::SealClear)
    }

    /// Returns `true` if this change encrypts with the active key what another key has encrypted.
    pub(crate) fn is_rekeying(&self) -> bool {
        self.task == Task::Rekey
    }

    /// Returns `true` if this change encrypts other values, but not this query.
    pub(crate) fn skips_query(&self, text: &str) -> bool {
        let is_kept = self.is_sealing() || self.is_rekeying() && !is_sealed(text);
        is_kept && !self.ring.encrypts_queries()
    }

    /// Returns what a task [`Task::Rekey`] has counted.
    pub(crate) fn into_tally(self) -> Tally {
        self.rekeyed.into_inner()
    }

    /// Returns `true` if this text is encrypted and stays as it is.
    pub(crate) fn should_keep(&self, text: &str) -> bool {
        self.task == Task::SealClear && is_sealed(text)
    }

    pub(crate) fn ring(&self) -> &Keyring {
        self.ring
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.get()
    }

    pub(crate) fn has_locked_values(&self) -> bool {
        self.has_locked_values.get()
    }

    pub(crate) fn edit_text(&self, field: &str, text: &mut String) -> Result<(), StoreError> {
        if let Some(new) = self.convert_text(field, text)? {
            *text = new;
        }
        Ok(())
    }

    pub(crate) fn edit_shared_text(
        &self,
        field: &str,
        text: &mut Arc<str>,
    ) -> Result<(), StoreError> {
        if let Some(new) = self.convert_text(field, text)? {
            *text = new.into();
        }
        Ok(())
    }

    pub(crate) fn edit_optional_text(
        &self,
        field: &str,
        text: &mut Option<String>,
    ) -> Result<(), StoreError> {
        text.as_mut().map_or(Ok(()), |text| self.edit_text(field, text))
    }

    pub(crate) fn edit_texts(&self, field: &str, texts: &mut [String]) -> Result<(), StoreError> {
        for (index, text) in texts.iter_mut().enumerate() {
            self.edit_text(&format!("{field}/{index}"), text)?;
        }
        Ok(())
    }

    pub(crate) fn edit_value(&self, field: &str, value: &mut Value) -> Result<(), StoreError> {
        if let Some(new) = self.convert_value(field, value)? {
            *value = new;
        }
        Ok(())
    }

    pub(crate) fn edit_shared_value(
        &self,
        field: &str,
        value: &mut Arc<Value>,
    ) -> Result<(), StoreError> {
        if let Some(new) = self.convert_value(field, value)? {
            *value = Arc::new(new);
        }
        Ok(())
    }

    pub(crate) fn edit_optional_value(
        &self,
        field: &str,
        value: &mut Option<Arc<Value>>,
    ) -> Result<(), StoreError> {
        value.as_mut().map_or(Ok(()), |value| self.edit_shared_value(field, value))
    }

    fn convert_text(&self, field: &str, text: &str) -> Result<Option<String>, StoreError> {
        if self.is_rekeying() {
            let clear = || (!text.is_empty()).then(|| text.as_bytes().to_vec());
            return self.rekey(field, text, clear);
        }
        if self.is_sealing() {
            // An empty text is not encrypted, because it has no secret.
            if text.is_empty() || self.should_keep(text) {
                return Ok(None);
            }
            return self.seal(field, text.as_bytes()).map(Some);
        }
        match self.open(field, text)? {
            None => Ok(None),
            Some(Opened::Content(bytes)) => {
                String::from_utf8(bytes).map(Some).map_err(|_| self.damaged(field))
            }
            Some(Opened::Locked(locked)) => Ok(Some(locked.to_string())),
        }
    }

    fn convert_value(&self, field: &str, value: &Value) -> Result<Option<Value>, StoreError> {
        if self.is_rekeying() {
            let clear = || (!is_empty(value)).then(|| value.to_string().into_bytes());
            let text = value.as_str().unwrap_or_default();
            return Ok(self.rekey(field, text, clear)?.map(Value::String));
        }
        if self.is_sealing() {
            if is_empty(value) || value.as_str().is_some_and(|text| self.should_keep(text)) {
                return Ok(None);
            }
            return self.seal(field, value.to_string().as_bytes()).map(Value::String).map(Some);
        }
        let Value::String(text) = value else { return Ok(None) };
        match self.open(field, text)? {
            None => Ok(None),
            Some(Opened::Content(bytes)) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|_| self.damaged(field))
            }
            Some(Opened::Locked(locked)) => Ok(Some(locked)),
        }
    }

    fn seal(&self, field: &str, content: &[u8]) -> Result<String, StoreError> {
        let document = self.document.to_string();
        let place = Place { collection: self.collection, document: &document, field };
        self.is_changed.set(true);
        self.ring.seal(place, content).ok_or(StoreError::KeyMissing)
    }

    /// Decrypts a text. Returns `None` if the text is not encrypted, because it was written before
    /// encryption was turned on, or if the task keeps encrypted texts.
    fn open(&self, field: &str, text: &str) -> Result<Option<Opened>, StoreError> {
        let sealed = SealedText::parse(text).filter(|_| self.task != Task::Keep);
        let Some(sealed) = sealed else { return Ok(None) };
        let document = self.document.to_string();
        let place = Place { collection: self.collection, document: &document, field };
        self.is_changed.set(true);
        match self.ring.open(place, sealed) {
            Ok(content) => Ok(Some(Opened::Content(content))),
            Err(OpenError::Damaged) => Err(self.damaged(field)),
            Err(OpenError::KeyMissing(key)) => {
                self.has_locked_values.set(true);
                if self.task == Task::Show {
                    return Ok(Some(Opened::Locked(locked_value(&key))));
                }
                Err(StoreError::Locked { what: format!("`{document}`"), key })
            }
        }
    }

    /// Returns the value as the active key encrypts it, or `None` if it stays as it is. `text` is
    /// the stored text, and `clear` makes the content of a value that is not encrypted.
    fn rekey(
        &self,
        field: &str,
        text: &str,
        clear: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<Option<String>, StoreError> {
        let mut tally = self.rekeyed.borrow_mut();
        let Some(sealed) = SealedText::parse(text) else {
            let Some(content) = clear() else { return Ok(None) };
            tally.clear += 1;
            return self.seal(field, &content).map(Some);
        };
        if Some(sealed.key) == self.ring.active_id() {
            return Ok(None);
        }
        let document = self.document.to_string();
        let place = Place { collection: self.collection, document: &document, field };
        let content = match self.ring.open(place, sealed) {
            Ok(content) => content,
            Err(OpenError::KeyMissing(key)) => {
                tally.add_locked(&key, 1);
                return Ok(None);
            }
            Err(OpenError::Damaged) => {
                tally.damaged += 1;
                return Ok(None);
            }
        };
        tally.add_opened(sealed.key, 1);
        self.seal(field, &content).map(Some)
    }

    fn damaged(&self, field: &str) -> StoreError {
        let why = format!("`{field}` cannot be decrypted: it was changed or moved");
        StoreError::corrupt(self.document, why)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Values that were clear.
    pub(crate) clear: u64,
    /// Values by the id of their key, which this process has.
    pub(crate) opened: BTreeMap<String, u64>,
    /// Values by the id of their key, which this process does not have.
    pub(crate) locked: BTreeMap<String, u64>,
    /// Values that were changed or moved, so that their key does not decrypt them.
    pub(crate) damaged: u64,
}

impl Tally {
    fn add_opened(&mut self, key: &str, values: u64) {
        *self.opened.entry(key.to_owned()).or_default() += values;
    }

    fn add_locked(&mut self, key: &str, values: u64) {
        *self.locked.entry(key.to_owned()).or_default() += values;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { clear, opened, locked, damaged } = other;
        self.clear += clear;
        self.damaged += damaged;
        for (key, values) in opened {
            self.add_opened(key, *values);
        }
        for (key, values) in locked {
            self.add_locked(key, *values);
        }
    }
}

enum Opened {
    Content(Vec<u8>),
    Locked(Value),
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
