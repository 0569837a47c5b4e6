//! Translates JSON text to BSON, and back to the same text. A value that BSON cannot hold is stored
//! as its JSON text, with the BSON type *JavaScript code*, which no converted value has by
//! accident.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use mongodb::bson::{Bson, Document, RawBsonRef, RawDocumentBuf, raw::CStr};
use shared::store::StoreError;

pub(super) use self::decode::append_text;

/// Maximum nesting that is stored as BSON. `MongoDB` refuses documents with more than 180 levels.
const MAX_DEPTH: usize = 96;
/// Maximum bytes of a document with converted values. `MongoDB` refuses documents above 16 MiB.
const MAX_BYTES: usize = 15 << 20 | 512 << 10;
/// Maximum bytes of the JSON text of an inner list or object, if the whole document is too large. A
/// longer list or object stays text.
const MAX_TEXT: usize = 1 << 10;
/// The end of the name of a field with an exact time.
const MICROS: &str = "Micros";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Type {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Bool = 0x08,
    Date = 0x09,
    Null = 0x0a,
    Code = 0x0d,
    Int32 = 0x10,
    Int64 = 0x12,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    None,
    Events,
    Event,
    Options,
    Reason,
}

impl Times {
    fn of_items(self) -> Self {
        if self == Self::Events { Self::Event } else { Self::None }
    }

    fn of_field(self, name: &[u8]) -> Self {
        match (self, name) {
            (Self::Event, b"options") => Self::Options,
            (Self::Event, b"reason") => Self::Reason,
            _ => Self::None,
        }
    }

    fn is_time(self, name: &[u8]) -> bool {
        match self {
            Self::Event => matches!(name, b"at" | b"until"),
            Self::Options => name == b"startAt",
            Self::Reason => name == b"until",
            Self::None | Self::Events => false,
        }
    }
}

/// A converted value. It is the only field of a document, because BSON has no values outside of
/// documents.
#[derive(Clone, Debug)]
pub(super) struct Value(RawDocumentBuf);

impl Value {
    /// Converts a JSON text. If the value would be too large for a document, its larger parts stay
    /// text.
    pub(super) fn from_json(text: &str, times: Times) -> Result<Self, StoreError> {
        let convert = |max_text| encode::encode(text, times, max_text).map_err(|()| invalid(text));
        let mut bytes = convert(usize::MAX)?;
        if bytes.len() > MAX_BYTES {
            bytes = convert(MAX_TEXT)?;
        }
        if bytes.len() > MAX_BYTES {
            bytes = encode::encode_text(text);
        }
        let document = RawDocumentBuf::from_bytes(bytes);
        document.map(Self).map_err(|err| StoreError::Unavailable(err.to_string()))
    }

    pub(super) fn append_to(&self, row: &mut RawDocumentBuf, field: &CStr) {
        // The document always has exactly one field.
        if let Some(Ok((_, value))) = self.0.iter().next() {
            row.append(field, value);
        }
    }

    pub(super) fn into_bson(self) -> Result<Bson, StoreError> {
        let document = Document::try_from(&*self.0);
        let document = document.map_err(|err| StoreError::Unavailable(err.to_string()))?;
        Ok(document.into_iter().next().map_or(Bson::Null, |(_, value)| value))
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.0.as_bytes().len()
    }
}

fn invalid(text: &str) -> StoreError {
    let start: String = text.chars().take(64).collect();
    StoreError::Unavailable(format!("a value is not JSON: `{}`", start.escape_debug()))
}

/// Returns the JSON text of a BSON value. `what` names the document in the error.
pub(super) fn to_text(value: RawBsonRef<'_>, what: &str) -> Result<String, StoreError> {
    let mut text = Vec::new();
    append_text(&mut text, value, what)?;
    String::from_utf8(text).map_err(|err| StoreError::corrupt(what, err))
}

/// Returns the JSON text of a `Bson` value. `what` names the document in the error.
pub(super) fn bson_to_text(value: &Bson, what: &str) -> Result<String, StoreError> {
    let mut document = Document::new();
    document.insert("v", value);
    let document = RawDocumentBuf::try_from(&document);
    let document = document.map_err(|err| StoreError::corrupt(what, err))?;
    let value = document.get("v").map_err(|err| StoreError::corrupt(what, err))?;
    value.map_or_else(|| Ok("null".to_owned()), |value| to_text(value, what))
}
