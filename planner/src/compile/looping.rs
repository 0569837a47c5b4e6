use serde_json::Value;
use shared::diagnostic::Diagnostic;

use super::{names::shorten_name, place};

const LIST_EXAMPLE: &str =
    "write one template whose value is a list, such as `{{listAuthors.items}}`";

pub(super) fn not_a_template_error(place: String, value: &Value) -> Diagnostic {
    let message = format!(
        "`forEach` must be one template whose value is a list, not {}",
        place::describe_kind(value)
    );
    Diagnostic::error("plan.invalid_for_each", place, message).with_help(list_help(value))
}

pub(super) fn not_whole_error(index: usize, written: &str) -> Diagnostic {
    let message = format!("`{}` is not a whole template", shorten_name(written));
    let is_list = written.trim_start().starts_with('[');
    let help = if is_list { list_help(&Value::Array(Vec::new())) } else { LIST_EXAMPLE.to_owned() };
    Diagnostic::error("plan.invalid_for_each", place::field_path(index, "forEach"), message)
        .with_help(help)
}

fn list_help(value: &Value) -> String {
    match value {
        Value::Array(_) => "pass the list as input and write `{{input.list}}`, or let a \
                            `flow.echo` step return it and write `{{thatStep.list}}`"
            .to_owned(),
        _ => LIST_EXAMPLE.to_owned(),
    }
}

pub(super) fn no_item_error(place: String, text: &str) -> Diagnostic {
    let message = format!("`{}` has a value only in a step with `forEach`", shorten_name(text));
    Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(
        "give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is the \
         current item, and `{{index}}` its index from 0; use them in `parameters` and `compensate`",
    )
}

pub(super) fn no_item_yet_error(place: String, text: &str) -> Diagnostic {
    let message = format!(
        "`{}` has no value in `forEach`, because the list is read before the first item",
        shorten_name(text)
    );
    Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(
        "for lists inside lists, let the step execute a plan (`plan`) with a `forEach` over \
         `{{input.list}}`",
    )
}
