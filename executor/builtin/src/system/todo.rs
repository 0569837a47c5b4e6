//! `todo_write`: formats a task list.

use std::{fmt::Write as _, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{System, ToolContext};

pub(super) const DESCRIPTION: &str = "Create or update a visual task list for the user.";

const MAX_TODOS: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TodoWrite {
    /// The whole list, in order.
    todos: Vec<Todo>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Todo {
    /// Description of the task.
    content: String,
    /// State of the task.
    status: Status,
    /// Text to show while the task is in progress, such as "Installing packages".
    #[serde(default, rename = "activeForm")]
    active_form: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

pub(super) async fn write_todos(
    _system: Arc<System>,
    args: TodoWrite,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let todos = &args.todos;
    if todos.len() > MAX_TODOS {
        let message =
            format!("a list of {} tasks is too long; the limit is {MAX_TODOS}", todos.len());
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, message));
    }
    let mut text = "Task List:\n\n".to_owned();
    for (index, todo) in todos.iter().enumerate() {
        let (mark, words) = match todo.status {
            Status::Pending => (' ', &todo.content),
            Status::InProgress => ('~', todo.active_form.as_ref().unwrap_or(&todo.content)),
            Status::Completed => ('x', &todo.content),
        };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{}. [{mark}] {words}", index + 1);
    }
    let count = |status| todos.iter().filter(|todo| todo.status == status).count();
    let _ = write!(
        text,
        "\nProgress: {}/{} completed, {} in progress, {} pending",
        count(Status::Completed),
        todos.len(),
        count(Status::InProgress),
        count(Status::Pending)
    );
    Ok(text)
}
