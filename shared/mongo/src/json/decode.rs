use mongodb::bson::{
    RawBsonRef,
    raw::{RawElement, RawIter},
};
use serde_json::Number;
use shared::store::StoreError;

use super::MICROS;

pub(crate) fn append_text(
    text: &mut Vec<u8>,
    value: RawBsonRef<'_>,
    what: &str,
) -> Result<(), StoreError> {
    match value {
        RawBsonRef::Document(fields) => append_fields(text, fields.iter_elements(), what)?,
        RawBsonRef::Array(items) => {
            text.push(b'[');
            for (n, item) in items.iter_elements().enumerate() {
                let item = item.map_err(|err| StoreError::corrupt(what, err))?;
                if n > 0 {
                    text.push(b',');
                }
                append_text(text, read_value(&item, what)?, what)?;
            }
            text.push(b']');
        }
        RawBsonRef::String(string) => append_string(text, string),
        // This type marks a value that is stored as its JSON text.
        RawBsonRef::JavaScriptCode(json) => text.extend(json.as_bytes()),
        RawBsonRef::Boolean(true) => text.extend(b"true"),
        RawBsonRef::Boolean(false) => text.extend(b"false"),
        RawBsonRef::Null => text.extend(b"null"),
        RawBsonRef::Int32(number) => text.extend(number.to_string().as_bytes()),
        RawBsonRef::Int64(number) => text.extend(number.to_string().as_bytes()),
        RawBsonRef::DateTime(time) => {
            let micros = time.timestamp_millis().saturating_mul(1_000);
            text.extend(micros.to_string().as_bytes());
        }
        RawBsonRef::Double(number) => {
            let number = Number::from_f64(number)
                .ok_or_else(|| StoreError::corrupt(what, format!("{number} is not JSON")))?;
            text.extend(number.to_string().as_bytes());
        }
        other => {
            let why = format!("Faber writes no value of the type {:?}", other.element_type());
            return Err(StoreError::corrupt(what, why));
        }
    }
    Ok(())
}

fn append_fields(text: &mut Vec<u8>, fields: RawIter<'_>, what: &str) -> Result<(), StoreError> {
    text.push(b'{');
    let (mut is_first, mut date_field) = (true, None::<&str>);
    for field in fields {
        let field = field.map_err(|err| StoreError::corrupt(what, err))?;
        let (name, value) = (field.key().as_str(), read_value(&field, what)?);
        if let (Some(date), RawBsonRef::Int64(micros)) = (date_field.take(), value)
            && name.strip_suffix(MICROS) == Some(date)
        {
            // Replaces the date, which the last step appended, by the exact time.
            let end = text.iter().rposition(|byte| *byte == b':').unwrap_or_default();
            text.truncate(end + 1);
            text.extend(micros.to_string().as_bytes());
            continue;
        }
        if !is_first {
            text.push(b',');
        }
        is_first = false;
        append_string(text, name);
        text.push(b':');
        if let RawBsonRef::DateTime(_) = value {
            date_field = Some(name);
        }
        append_text(text, value, what)?;
    }
    text.push(b'}');
    Ok(())
}

fn read_value<'a>(element: &RawElement<'a>, what: &str) -> Result<RawBsonRef<'a>, StoreError> {
    element.value().map_err(|err| StoreError::corrupt(what, err))
}

fn append_string(text: &mut Vec<u8>, string: &str) {
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    if string.as_bytes().iter().all(is_plain) {
        text.push(b'"');
        text.extend(string.as_bytes());
        text.push(b'"');
    } else {
        serde_json::to_writer(text, string).expect("memory is writable");
    }
}
