//! Checks of `forEach` and of `{{item}}`.

use serde_json::Value;
use shared::diagnostic::Diagnostic;

use super::{names::clip, place};

const EXAMPLE: &str = "write one template that gives a list, such as `{{listAuthors.items}}`";

pub(super) fn not_a_template(place: String, value: &Value) -> Diagnostic {
    let message =
        format!("`forEach` must be one template that gives a list, not {}", place::kind(value));
    Diagnostic::error("plan.invalid_for_each", place, message).with_help(list_help(value))
}

/// Reports a `forEach` that is not one whole template.
pub(super) fn not_whole(at: usize, written: &str) -> Diagnostic {
    let message = format!("`{}` is not one whole template", clip(written));
    let is_list = written.trim_start().starts_with('[');
    let help = if is_list { list_help(&Value::Array(Vec::new())) } else { EXAMPLE.to_owned() };
    Diagnostic::error("plan.invalid_for_each", place::field_path(at, "forEach"), message)
        .with_help(help)
}

fn list_help(value: &Value) -> String {
    match value {
        Value::Array(_) => "give the list to the execution and write `{{input.list}}`, or let a \
                            `flow.echo` step return it and write `{{thatStep.list}}`"
            .to_owned(),
        _ => EXAMPLE.to_owned(),
    }
}

/// Reports `{{item}}` or `{{index}}` outside of a loop.
pub(super) fn no_item(place: String, text: &str) -> Diagnostic {
    let message = format!("`{}` means something only in a step with `forEach`", clip(text));
    Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(
        "give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is each of the \
         items in turn, and `{{index}}` its place from 0; use them in `parameters` and `compensate`",
    )
}

/// Reports a list that refers to its own items.
pub(super) fn no_item_yet(place: String, text: &str) -> Diagnostic {
    let message = format!("`{}`: the list is taken before there is an item", clip(text));
    Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(
        "for lists inside lists let the step execute a plan (`plan`) whose own step goes through \
         `{{input.list}}`",
    )
}
