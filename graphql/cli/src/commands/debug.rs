use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::{
    failure::Failure,
    operations::find_execution,
    plan_file::write_file,
    read_answer,
    request_report::load_request,
    types::{BLOB_FIELDS, Request},
    view::report::draw_report,
};
use serde_json::{Value, json};

use crate::{ExitStatus, args::DebugArgs, screen::write_bytes, session::Session};

pub(crate) async fn debug(session: &Session<'_>, args: &DebugArgs) -> Result<ExitStatus, Failure> {
    let (screen, id) = (session.screen, args.id.as_str());
    let document = load_request(&session.client, id).await?;
    if screen.json {
        screen.print_json(&document)?;
    } else {
        let request: Request = read_answer(document)?;
        let execution = id.starts_with("exec_").then_some(id);
        screen.print(&draw_report(&request, execution, args.full, screen.out))?;
    }
    Ok(ExitStatus::Done)
}

/// Prints the trace of an execution as JSON, even without `--json`, because OpenTelemetry
/// collectors read this form.
pub(crate) async fn export_trace(session: &Session<'_>, id: &str) -> Result<ExitStatus, Failure> {
    let found = find_execution(&session.client, id).await?;
    let id = found.execution_id.to_string();
    let answer: Value = session.client.query_execution(&id, "trace").await?;
    session.screen.print_json(&answer["trace"])?;
    Ok(ExitStatus::Done)
}

pub(crate) async fn print_blob(
    session: &Session<'_>,
    id: &str,
    file: Option<&Path>,
) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    let mut found: Value =
        session.client.query("blob", &[("id: ID!", json!(id))], BLOB_FIELDS).await?;
    if found.is_null() {
        return Err(Failure::not_found("blob", id));
    }
    if screen.json && file.is_none() {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let bytes = STANDARD.decode(found["data"].as_str().unwrap_or_default());
    let damaged = |err| Failure::new("INTERNAL", format!("`{id}` is damaged: {err}"));
    let bytes = bytes.map_err(damaged)?;
    match file {
        Some(file) => {
            write_file(file, &bytes).await?;
            if let (true, Some(fields)) = (screen.json, found.as_object_mut()) {
                fields.shift_remove("data");
                fields.insert("output".to_owned(), json!(file));
                screen.print_json(&found)?;
            }
        }
        None if screen.is_terminal => screen.print_document(&String::from_utf8_lossy(&bytes))?,
        None => write_bytes(&bytes)?,
    }
    Ok(ExitStatus::Done)
}
