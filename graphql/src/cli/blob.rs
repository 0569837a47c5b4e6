//! `faber blob`: what is in a large binary that a tool returned.

use std::{
    io::{self, Write},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    Ending, Session,
    failure::Failure,
    house::{House, Need},
    shape::Shape,
};

/// Writes a binary to a file, or to standard output.
pub(super) async fn blob(
    session: &Session,
    id: &str,
    file: Option<&Path>,
) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let found = async {
        let fields = Shape::of(house.client()).await?.scalars("Blob");
        let query = format!("query($id: ID!) {{ blob(id: $id) {fields} }}");
        house.client().field(&query, json!({ "id": id })).await
    };
    let found = found.await;
    house.close().await;
    let mut found = found?;
    if found.is_null() {
        return Err(Failure::not_found("blob", id));
    }
    let screen = &session.screen;
    if screen.json && file.is_none() {
        screen.print_json(&found)?;
        return Ok(Ending::Done);
    }
    let data = found.get("data").and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(data);
    let bytes =
        bytes.map_err(|err| Failure::new("INTERNAL", format!("`{id}` is damaged: {err}")))?;
    match file {
        Some(file) => {
            let written = tokio::fs::write(file, &bytes).await;
            written.map_err(|err| {
                Failure::usage(format!("`{}` cannot be written: {err}", file.display()))
            })?;
            if let (true, Some(fields)) = (screen.json, found.as_object_mut()) {
                fields.shift_remove("data");
                fields.insert("output".to_owned(), json!(file));
                screen.print_json(&found)?;
            }
        }
        None if screen.is_terminal => screen.document(&String::from_utf8_lossy(&bytes))?,
        None => print(&bytes)?,
    }
    Ok(Ending::Done)
}

/// Whoever closed the stream has read enough.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("INTERNAL", format!("standard output cannot be written: {err}")))
        }
        _ => Ok(()),
    }
}
