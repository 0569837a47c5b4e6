use serde_json::{Map, Value, json};
use shared::clock::Timestamp;

use super::{
    id::IdSource,
    store::{Data, Record},
    tools::{DocumentKind, Field, Offer, Rule, Verb},
};

/// Maximum number of records of one kind, because every call reads the whole file.
pub(super) const MAX_RECORDS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is no {noun} with the id `{id}`")]
    Unknown { noun: &'static str, id: String },
    #[error(
        "the author `{name}` (`{id}`) has the e-mail address `{email}` already: choose another"
    )]
    EmailTaken { email: String, name: String, id: String },
    #[error("there are {MAX_RECORDS} records of the kind `{0}` already: delete some first")]
    Full(&'static str),
}

pub(super) fn perform(
    offer: &Offer,
    arguments: &Map<String, Value>,
    data: &mut Data,
    ids: &IdSource,
    now: Timestamp,
) -> Result<Value, Refusal> {
    match offer.verb {
        Verb::Create => {
            check_references(offer.fields, arguments, data)?;
            check_email(arguments, data, None)?;
            create(offer.kind, arguments, data, &ids.new_id(now), now)
        }
        Verb::Get => {
            let id = text_field(arguments, "id");
            Ok(find(data, offer.kind, id)
                .map_or(Value::Null, |record| Value::Object(record.clone())))
        }
        Verb::Update => {
            check_email(arguments, data, Some(text_field(arguments, "id")))?;
            update(offer.kind, arguments, data, now)
        }
        Verb::Delete => {
            let id = text_field(arguments, "id").to_lowercase();
            data.records_mut(offer.kind).retain(|record| text_field(record, "_id") != id);
            Ok(json!({ "success": true }))
        }
        Verb::List => Ok(list(offer.kind, arguments, data)),
    }
}

fn create(
    kind: DocumentKind,
    arguments: &Map<String, Value>,
    data: &mut Data,
    id: &str,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let records = data.records_mut(kind);
    if records.len() >= MAX_RECORDS {
        return Err(Refusal::Full(kind.noun()));
    }
    let mut record = Record::new();
    record.insert("_id".to_owned(), json!(id));
    record.extend(arguments.clone());
    record.insert("createdAt".to_owned(), format_time(now));
    record.insert("updatedAt".to_owned(), format_time(now));
    records.push(record.clone());
    Ok(Value::Object(record))
}

fn update(
    kind: DocumentKind,
    arguments: &Map<String, Value>,
    data: &mut Data,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let id = text_field(arguments, "id").to_lowercase();
    let record = data.records_mut(kind).iter_mut().find(|record| text_field(record, "_id") == id);
    let record = record.ok_or(Refusal::Unknown { noun: kind.noun(), id })?;
    for (name, value) in arguments.iter().filter(|(name, _)| *name != "id") {
        record.insert(name.clone(), value.clone());
    }
    record.insert("updatedAt".to_owned(), format_time(now));
    Ok(Value::Object(record.clone()))
}

fn list(kind: DocumentKind, arguments: &Map<String, Value>, data: &Data) -> Value {
    let blog = arguments.get("blogId").and_then(Value::as_str).map(str::to_lowercase);
    let records = data.records(kind).iter();
    let records = records.filter(|record| {
        blog.as_deref().is_none_or(|blog| are_same_ids(text_field(record, "blogId"), blog))
    });
    records.cloned().map(Value::Object).collect()
}

fn check_references(
    fields: &[Field],
    arguments: &Map<String, Value>,
    data: &Data,
) -> Result<(), Refusal> {
    for field in fields {
        let Rule::Id(kind) = field.rule else { continue };
        let id = text_field(arguments, field.name);
        if find(data, kind, id).is_none() {
            return Err(Refusal::Unknown { noun: kind.noun(), id: id.to_owned() });
        }
    }
    Ok(())
}

fn check_email(
    arguments: &Map<String, Value>,
    data: &Data,
    author_id: Option<&str>,
) -> Result<(), Refusal> {
    let Some(email) = arguments.get("email").and_then(Value::as_str) else { return Ok(()) };
    let mut others = data.records(DocumentKind::Author).iter().filter(|author| {
        author_id.is_none_or(|author_id| !are_same_ids(text_field(author, "_id"), author_id))
    });
    match others.find(|author| text_field(author, "email").to_lowercase() == email.to_lowercase()) {
        None => Ok(()),
        Some(other) => Err(Refusal::EmailTaken {
            email: email.to_owned(),
            name: text_field(other, "name").to_owned(),
            id: text_field(other, "_id").to_owned(),
        }),
    }
}

fn find<'a>(data: &'a Data, kind: DocumentKind, id: &str) -> Option<&'a Record> {
    data.records(kind).iter().find(|record| are_same_ids(text_field(record, "_id"), id))
}

/// Ids are hexadecimal numbers, so case does not matter.
fn are_same_ids(id: &str, other: &str) -> bool {
    id.eq_ignore_ascii_case(other)
}

fn text_field<'a>(record: &'a Map<String, Value>, name: &str) -> &'a str {
    record.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn format_time(now: Timestamp) -> Value {
    json!(now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}
