use mongodb::bson::{RawArrayBuf, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use serde::Serialize;
use shared::{
    id::PlanId,
    plan::{Plan, PlanInfo},
    store::{
        StoreError,
        backend::{fold_case, searched_tools},
        sub_plans,
    },
};

use super::{
    json::{Times, Value, to_text},
    lists::CREATED,
    rows,
    text_parts::{MAX_PART_BYTES, split_text},
};

/// The fields of a stored plan whose JSON is converted to BSON without other changes.
const FIELDS: [&str; 3] = ["steps", "written", "diagnostics"];

pub(super) struct StoredPlan {
    pub(super) row: RawDocumentBuf,
    /// The parts of the JSON text of a large plan. The row of such a plan does not contain the
    /// text.
    pub(super) parts: Vec<String>,
    /// The length of the JSON text, of the whole plan if it is stored in parts, and otherwise of
    /// its steps.
    pub(super) bytes: usize,
}

impl StoredPlan {
    pub(super) fn new(plan: &Plan) -> Result<Self, StoreError> {
        let (info, unchecked) = (plan.info(), plan.to_unchecked());
        let mut row = rawdoc! {
            "_id": info.id.to_string(),
            "requestId": info.request.to_string(),
            "version": i64::from(info.version),
            "createdAt": rows::to_date(info.created_at),
            "createdAtMicros": info.created_at.timestamp_micros(),
            "query": info.query.as_str(),
            "planner": info.planner.as_str(),
            "folded": fold_case(&info.query),
            "tools": to_array(searched_tools(plan)),
        };
        let sub_plans: Vec<String> = sub_plans(plan).iter().map(ToString::to_string).collect();
        if !sub_plans.is_empty() {
            row.append(cstr!("subPlans"), to_array(sub_plans.iter().map(String::as_str)));
        }
        let steps = to_json(&unchecked.steps);
        if steps.len() > MAX_PART_BYTES {
            let json = to_json(&unchecked);
            let parts: Vec<String> = split_text(&json).into_iter().map(str::to_owned).collect();
            row.append(cstr!("parts"), i64::try_from(parts.len()).unwrap_or(i64::MAX));
            return Ok(Self { row, parts, bytes: json.len() });
        }
        Value::from_json(&steps, Times::None)?.append_to(&mut row, cstr!("steps"));
        if !unchecked.written.is_empty() {
            let written = Value::from_json(&to_json(&unchecked.written), Times::None)?;
            written.append_to(&mut row, cstr!("written"));
        }
        if !unchecked.diagnostics.is_empty() {
            let diagnostics = Value::from_json(&to_json(&unchecked.diagnostics), Times::None)?;
            diagnostics.append_to(&mut row, cstr!("diagnostics"));
        }
        Ok(Self { row, parts: Vec::new(), bytes: steps.len() })
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plans are JSON")
}

fn to_array<'a>(texts: impl IntoIterator<Item = &'a str>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    texts.into_iter().for_each(|text| array.push(text));
    array
}

/// Returns the JSON of a plan that is not stored in parts.
pub(super) fn plan_text(row: &RawDocument, id: PlanId) -> Result<String, StoreError> {
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt(id, err);
    let read_text = |field| row.get_str(field).map(str::to_owned).map_err(damaged);
    let micros = row.get_i64(CREATED).map_err(damaged)?;
    let version = u32::try_from(row.get_i64("version").map_err(damaged)?);
    let about = PlanInfo {
        id,
        request: read_text("requestId")?.parse().map_err(|err| StoreError::corrupt(id, err))?,
        version: version.map_err(|err| StoreError::corrupt(id, err))?,
        query: read_text("query")?,
        planner: read_text("planner")?,
        created_at: rows::to_time(micros, CREATED, &id.to_string())?,
    };
    let mut text = format!("{{\"about\":{}", to_json(&about));
    for field in FIELDS {
        let value = row.get(field).map_err(|err| StoreError::corrupt(id, err))?;
        if let Some(value) = value {
            text.extend([",\"", field, "\":", &to_text(value, &id.to_string())?]);
        }
    }
    text.push('}');
    Ok(text)
}
