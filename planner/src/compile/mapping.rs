//! Which part of a step's output fills which variable.

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    id::{STEP_ID_LEN, is_step_id_char},
    plan::Mapping,
    template::Path,
};

use super::{names::clip, place, report::Report};
use crate::draft::DraftStep;

/// Reads a step's `outputMapping`; what is wrong is reported and left out.
pub(super) fn read(at: usize, step: &DraftStep, report: &mut Report) -> Vec<Mapping> {
    let Some(mapping) = &step.output_mapping else { return Vec::new() };
    let mut read = Vec::with_capacity(mapping.len());
    for (path, variable) in mapping {
        match check(path, variable) {
            Ok(mapping) => read.push(mapping),
            Err(message) => report.error(at, || {
                let place = format!("tools[{at}].outputMapping{}", place::key(path));
                Diagnostic::error("plan.invalid_mapping", place, message)
                    .with_help("write `{\"path in the output\": \"variable\"}`")
            }),
        }
    }
    read
}

fn check(written: &str, variable: &Value) -> Result<Mapping, String> {
    let path = written.parse::<Path>();
    let path = path.map_err(|err| format!("`{}` is not a path: {err}", clip(written)))?;
    let Value::String(variable) = variable else {
        return Err(format!("a variable's name must be text, not {}", place::kind(variable)));
    };
    let is_name = (1..=STEP_ID_LEN).contains(&variable.chars().count())
        && variable.chars().all(is_step_id_char);
    if !is_name {
        let rule = "letters, digits, `_`, `-` and `.`, at most 128";
        return Err(format!("`{}` is not a variable's name: {rule}", clip(variable)));
    }
    Ok(Mapping { written: written.to_owned(), path, variable: variable.as_str().into() })
}
