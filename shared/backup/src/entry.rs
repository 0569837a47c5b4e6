//! Entries of backups and exports. Each entry is one line of JSON with a `type`. Times are
//! microseconds since 1970.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use shared::{
    clock::Timestamp,
    event::{RecordedEvent, decode_events, encode_events},
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId, Seq, WorkerId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{AuditEntry, Record, RecordKind, SentCommand},
};

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A request with the beginning of its transcript.
    Request {
        request: Request,
        transcript: Vec<TranscriptEntry>,
    },
    /// A further part of a transcript. It begins after the first `known` entries of the transcript.
    Transcript {
        request: RequestId,
        known: usize,
        transcript: Vec<TranscriptEntry>,
    },
    Plan(Arc<Plan>),
    Events {
        execution: ExecutionId,
        events: Vec<RecordedEvent>,
    },
    Execution(Box<LogEnd>),
    Record(Record),
    Audit(Box<AuditEntry>),
}

/// The end of a log, with the state that the log does not contain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogEnd {
    pub(crate) execution: ExecutionId,
    pub(crate) plan: PlanId,
    pub(crate) request: RequestId,
    pub(crate) state: ExecutionState,
    pub(crate) seq: Seq,
    pub(crate) owner: Option<WorkerId>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) commands: Vec<SentCommand>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    type_name: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    transcript: Option<&'a RawValue>,
    #[serde(borrow)]
    plan: Option<&'a RawValue>,
    #[serde(borrow)]
    events: Option<&'a RawValue>,
    #[serde(borrow)]
    commands: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    entry: Option<&'a RawValue>,
    request_id: Option<RequestId>,
    plan_id: Option<PlanId>,
    execution_id: Option<ExecutionId>,
    first: Option<u64>,
    state: Option<ExecutionState>,
    seq: Option<u64>,
    owner: Option<WorkerId>,
    due: Option<i64>,
    kind: Option<String>,
    name: Option<String>,
    at: Option<i64>,
}

impl Entry {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Transcript { .. } => "transcript",
            Self::Plan(_) => "plan",
            Self::Events { .. } => "events",
            Self::Execution(_) => "execution",
            Self::Record(_) => "record",
            Self::Audit(_) => "audit",
        }
    }

    /// Encodes the entry as one line, without the line break.
    pub(crate) fn encode(&self) -> String {
        let type_name = self.type_name();
        match self {
            Self::Request { request, transcript } => {
                json!({ "type": type_name, "request": request, "transcript": transcript })
                    .to_string()
            }
            Self::Transcript { request, known, transcript } => json!({
                "type": type_name, "requestId": request, "first": known, "transcript": transcript,
            })
            .to_string(),
            Self::Plan(plan) => {
                format!(r#"{{"type":"{type_name}","plan":{}}}"#, plan.to_json())
            }
            Self::Events { execution, events } => {
                let first = events.first().map_or(0, |event| event.seq.0);
                let events = encode_events(events);
                format!(
                    r#"{{"type":"{type_name}","executionId":"{execution}","first":{first},"events":{events}}}"#
                )
            }
            Self::Execution(end) => json!({
                "type": type_name, "executionId": end.execution, "planId": end.plan,
                "requestId": end.request, "state": end.state, "seq": end.seq.0,
                "owner": end.owner, "due": end.due.map(|due| due.timestamp_micros()),
                "commands": end.commands,
            })
            .to_string(),
            Self::Record(Record { kind, name, value, at }) => json!({
                "type": type_name, "kind": kind.as_str(), "name": name,
                "at": at.timestamp_micros(), "value": value,
            })
            .to_string(),
            Self::Audit(entry) => json!({ "type": type_name, "entry": entry }).to_string(),
        }
    }

    pub(crate) fn decode(line: &[u8]) -> Result<Self, String> {
        let line: Line<'_> = serde_json::from_slice(line).map_err(|err| err.to_string())?;
        match &*line.type_name {
            "request" => Ok(Self::Request {
                request: parse(require(line.request, "request")?)?,
                transcript: line.transcript.map(parse).transpose()?.unwrap_or_default(),
            }),
            "transcript" => Ok(Self::Transcript {
                request: require(line.request_id, "requestId")?,
                known: usize::try_from(require(line.first, "first")?)
                    .map_err(|err| err.to_string())?,
                transcript: parse(require(line.transcript, "transcript")?)?,
            }),
            "plan" => {
                let plan = Plan::from_json(require(line.plan, "plan")?.get());
                Ok(Self::Plan(Arc::new(plan.map_err(|err| err.to_string())?)))
            }
            "events" => {
                let first = Seq(require(line.first, "first")?);
                let events = decode_events(first, require(line.events, "events")?.get());
                let events = events.map_err(|err| err.to_string())?;
                Ok(Self::Events { execution: require(line.execution_id, "executionId")?, events })
            }
            "execution" => Ok(Self::Execution(Box::new(read_log_end(&line)?))),
            "record" => read_record(line).map(Self::Record),
            "audit" => Ok(Self::Audit(parse(require(line.entry, "entry")?)?)),
            other => Err(format!("the type `{other}` is unknown")),
        }
    }
}

fn read_log_end(line: &Line<'_>) -> Result<LogEnd, String> {
    Ok(LogEnd {
        execution: require(line.execution_id, "executionId")?,
        plan: require(line.plan_id, "planId")?,
        request: require(line.request_id, "requestId")?,
        state: require(line.state, "state")?,
        seq: Seq(require(line.seq, "seq")?),
        owner: line.owner,
        due: line.due.map(to_time).transpose()?,
        commands: line.commands.map(parse).transpose()?.unwrap_or_default(),
    })
}

fn read_record(line: Line<'_>) -> Result<Record, String> {
    let name = require(line.kind, "kind")?;
    let kind = find_kind(&name).ok_or_else(|| format!("the kind `{name}` is unknown"))?;
    Ok(Record {
        kind,
        name: require(line.name, "name")?,
        // `null` is a valid value of a record, but `Option` reads `null` as `None`.
        value: line.value.map_or_else(|| Ok(Arc::new(Value::Null)), parse)?,
        at: to_time(require(line.at, "at")?)?,
    })
}

/// The kinds of records that entries can have.
pub(crate) fn backup_kinds() -> impl Iterator<Item = RecordKind> {
    let others = [
        RecordKind::EncryptionKey,
        RecordKind::Key,
        RecordKind::SavedPlan,
        RecordKind::Output,
        RecordKind::Usage,
    ];
    RecordKind::DOCUMENTS.into_iter().chain(others)
}

fn find_kind(name: &str) -> Option<RecordKind> {
    backup_kinds().find(|kind| kind.as_str() == name)
}

fn require<T>(field: Option<T>, name: &str) -> Result<T, String> {
    field.ok_or_else(|| format!("`{name}` is missing"))
}

fn parse<T: DeserializeOwned>(text: &RawValue) -> Result<T, String> {
    serde_json::from_str(text.get()).map_err(|err| err.to_string())
}

fn to_time(micros: i64) -> Result<Timestamp, String> {
    Timestamp::from_timestamp_micros(micros).ok_or_else(|| format!("{micros} is not a time"))
}

#[cfg(test)]
mod tests {
    use shared::{
        actor::Actor,
        store::{AuditAction, AuditTarget, Command},
    };

    use super::*;

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded() {
        let request: RequestId = "req_1_aaaaaaaaa".parse().unwrap();
        let at = to_time(1_700_000_000_123_456).unwrap();
        let transcript = vec![TranscriptEntry {
            at,
            kind: "query".to_owned(),
            content: json!({ "b": 1, "a": "\u{0}\n" }),
        }];
        let value = json!({ "z": [u64::MAX, i64::MIN, 0.1, 1e300], "a": { "\u{0}": null } });
        let command = SentCommand {
            id: "cmd_1_aaaaaaaaa".parse().unwrap(),
            execution: "exec_1_aaaaaaaaa".parse().unwrap(),
            at,
            by: None,
            command: Command::Pause,
        };
        let end = LogEnd {
            execution: command.execution,
            plan: "plan_1_aaaaaaaaa".parse().unwrap(),
            request,
            state: ExecutionState::Waiting,
            seq: Seq(7),
            owner: None,
            due: Some(at),
            commands: vec![command],
        };
        let (actor, target) = (Arc::new(Actor::token("ops")), AuditTarget::named("shop"));
        let detail = json!({ "changed": 2 });
        let action = AuditEntry::new(at, actor, AuditAction::ADD_TOOL_SET, target, detail);
        let record =
            |kind, value| Record { kind, name: "a\u{0}b".to_owned(), value: Arc::new(value), at };
        for entry in [
            Entry::Request {
                request: Request {
                    labels: [("team".to_owned(), "blue".to_owned())].into(),
                    ..Request::new(request, "q".to_owned(), at)
                },
                transcript: transcript.clone(),
            },
            Entry::Transcript { request, known: 3, transcript },
            Entry::Execution(Box::new(end)),
            Entry::Record(record(RecordKind::Memory, value)),
            Entry::Record(record(RecordKind::Key, Value::Null)),
            Entry::Audit(Box::new(action)),
        ] {
            let line = entry.encode();
            assert!(!line.contains('\n'), "{line}");
            let decoded = Entry::decode(line.as_bytes()).unwrap();
            assert_eq!(decoded.encode(), line);
            assert_eq!(format!("{decoded:?}"), format!("{entry:?}"));
        }
    }

    #[test]
    fn a_wrong_line_is_refused_with_the_reason() {
        for (line, why) in [
            ("", "EOF while parsing"),
            ("3", "invalid type"),
            ("{}", "missing field `type`"),
            (r#"{"type":"x"}"#, "the type `x` is unknown"),
            (r#"{"type":"plan"}"#, "`plan` is missing"),
            (r#"{"type":"plan","extra":1}"#, "unknown field `extra`"),
            (r#"{"type":"record","kind":"x","name":"n","at":1}"#, "the kind `x` is unknown"),
            (
                r#"{"type":"record","kind":"tool","name":"n","at":9223372036854775807}"#,
                "is not a time",
            ),
            (
                r#"{"type":"events","executionId":"exec_1_aaaaaaaaa","first":1,"events":[{}]}"#,
                "missing field",
            ),
            (r#"{"type":"execution","executionId":"x"}"#, "is not an id"),
        ] {
            let err = Entry::decode(line.as_bytes()).unwrap_err();
            assert!(err.contains(why), "{line}: {err}");
        }
    }
}
