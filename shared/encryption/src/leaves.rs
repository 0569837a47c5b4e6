//! The values of each document that are encrypted. The patterns name all fields, so that code with
//! a new field does not compile until its author decides whether the field is encrypted.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    event::{CallKey, Created, Event, SettledCall, Settlement, StepStarted, WaitReason},
    execution::ExecutionOptions,
    plan::{PlanInfo, UncheckedCompensation, UncheckedPlan, UncheckedStep},
    sealed::{LOCKED_FIELD, SealedText, is_sealed},
    store::{Command, ExecutionHead, HeadError, Record, SecretParts, StoreError},
    tool::{Progress, ToolError},
};

use crate::edit::Edit;

type Edited = Result<(), StoreError>;

pub(crate) fn edit_event(edit: &Edit<'_>, event: &mut Event) -> Edited {
    match event {
        Event::Created(created) => edit_created(edit, created),
        Event::StepStarted(started) => edit_step_started(edit, started),
        Event::StepSucceeded { step: _, part: _, attempt: _, output, cached: _, stderr } => {
            edit.edit_optional_value("output", output)?;
            edit.edit_optional_text("stderr", stderr)
        }
        Event::StepProgress { step: _, part: _, attempt: _, progress } => {
            let Progress { progress: _, total: _, message } = progress;
            message.as_mut().map_or(Ok(()), |message| edit.edit_shared_text("message", message))
        }
        Event::StepChecked { step: _, parameters, warnings } => {
            edit.edit_shared_value("parameters", parameters)?;
            edit.edit_texts("warnings", warnings)
        }
        Event::StepRetryScheduled { step: _, part: _, attempt: _, error, until: _ }
        | Event::StepFailed { step: _, part: _, attempt: _, error, command: _ }
        | Event::ExecutionFailed { error } => edit_error(edit, error),
        Event::StepInterrupted { step: _, part: _, attempt: _, error } => {
            error.as_mut().map_or(Ok(()), |error| edit_error(edit, error))
        }
        Event::StepWaiting { step: _, part: _, reason, parameters, warnings } => {
            edit.edit_shared_value("parameters", parameters)?;
            edit.edit_texts("warnings", warnings)?;
            match reason {
                WaitReason::Decision { error } => edit_error(edit, error),
                WaitReason::Approval | WaitReason::Signal { name: _, until: _ } => Ok(()),
            }
        }
        Event::StepApproved { step: _, part: _, comment, command: _ } => {
            edit.edit_optional_text("comment", comment)
        }
        Event::StepSettled {
            step: _,
            part: _,
            attempt: _,
            outcome: _,
            output,
            comment,
            command: _,
        } => {
            edit.edit_optional_value("output", output)?;
            edit.edit_optional_text("comment", comment)
        }
        Event::SignalReceived { name: _, payload, command: _ } => {
            edit.edit_shared_value("payload", payload)
        }
        Event::CancelRequested { reason } => edit.edit_optional_text("reason", reason),
        Event::Claimed(_)
        | Event::StepSkipped { step: _, part: _, reason: _ }
        | Event::StepCancelled { step: _, part: _ }
        | Event::SignalRefused { name: _, command: _ }
        | Event::CommandIgnored { asked: _, command: _ }
        | Event::DeadlinePassed
        | Event::WaitsShortened { ahead_ms: _ }
        | Event::Paused { command: _ }
        | Event::Resumed { command: _ }
        | Event::CompensationStarted
        | Event::Finished { outcome: _ } => Ok(()),
    }
}

fn edit_created(edit: &Edit<'_>, created: &mut Created) -> Edited {
    let Created {
        plan: _,
        request: _,
        options,
        parent: _,
        retry_of: _,
        reused,
        call_keys,
        settled,
        trace: _,
        is_replan: _,
        forked_from: _,
    } = created;
    let ExecutionOptions {
        mode: _,
        max_parallel: _,
        deadline_ms: _,
        strict_templates: _,
        start_at: _,
        priority: _,
        input,
        compensate_on_failure: _,
        dry_run: _,
        replans: _,
        labels: _,
    } = options;
    edit.edit_shared_value("input", input)?;
    for (index, (_, output)) in reused.iter_mut().enumerate() {
        edit.edit_shared_value(&format!("reused/{index}"), output)?;
    }
    // The hash is encrypted, too, because somebody could guess parameters and compare their hash.
    for (index, CallKey { place: _, key: _, parameters }) in call_keys.iter_mut().enumerate() {
        edit.edit_text(&format!("callKeys/{index}"), parameters)?;
    }
    for (index, call) in settled.iter_mut().enumerate() {
        let SettledCall { place: _, output, parameters, comment } = call;
        edit.edit_optional_value(&format!("settled/{index}/output"), output)?;
        edit.edit_text(&format!("settled/{index}/parameters"), parameters)?;
        edit.edit_optional_text(&format!("settled/{index}/comment"), comment)?;
    }
    Ok(())
}

fn edit_step_started(edit: &Edit<'_>, started: &mut StepStarted) -> Edited {
    let StepStarted {
        step: _,
        part: _,
        attempt: _,
        parameters,
        warnings,
        until: _,
        items: _,
        child: _,
        key: _,
        effect: _,
    } = started;
    edit.edit_shared_value("parameters", parameters)?;
    edit.edit_texts("warnings", warnings)
}

fn edit_error(edit: &Edit<'_>, error: &mut ToolError) -> Edited {
    let ToolError { code: _, message, retryable: _, is_definite: _ } = error;
    edit.edit_shared_text("error", message)
}

pub(crate) fn edit_command(edit: &Edit<'_>, command: &mut Command) -> Edited {
    match command {
        Command::Cancel { reason } => edit.edit_optional_text("reason", reason),
        Command::Approve { step: _, item: _, approved: _, comment } => {
            edit.edit_optional_text("comment", comment)
        }
        Command::Settle { step: _, item: _, decision } => {
            let Settlement { outcome: _, output, comment } = decision;
            edit.edit_optional_value("output", output)?;
            edit.edit_optional_text("comment", comment)
        }
        Command::Signal { name: _, payload } => edit.edit_shared_value("payload", payload),
        Command::Pause | Command::Resume | Command::ChildEnded { child: _ } => Ok(()),
    }
}

/// Changes the texts of a head. A missing key is no error, because a head is a cache that every
/// worker writes, even a worker without the key.
pub(crate) fn edit_head(edit: &Edit<'_>, head: &mut ExecutionHead) {
    if let Some(HeadError { code: _, tool: _, message }) = &mut head.error {
        edit_head_text(edit, "error", message);
    }
    if !edit.skips_query(&head.query) {
        edit_head_text(edit, "query", &mut head.query);
    }
}

fn edit_head_text(edit: &Edit<'_>, field: &str, text: &mut Arc<str>) {
    if edit.is_sealing() && is_sealed(text) {
        return;
    }
    match edit.edit_shared_text(field, text) {
        Ok(()) | Err(StoreError::Locked { .. }) => (),
        Err(_) => *text = "".into(),
    }
}

struct StepSecrets {
    parameters: Value,
    when: Value,
    inputs: Value,
    undo: Value,
}

pub(crate) fn edit_plan(edit: &Edit<'_>, plan: &mut UncheckedPlan) -> Edited {
    let UncheckedPlan { about, steps, written: _, diagnostics } = plan;
    let PlanInfo { id: _, request: _, version: _, query, planner: _, created_at: _ } = about;
    edit_query(edit, query)?;
    for (index, step) in steps.iter_mut().enumerate() {
        edit_step(edit, &format!("steps/{index}"), step)?;
    }
    for (index, diagnostic) in diagnostics.iter_mut().enumerate() {
        let Diagnostic { severity: _, code: _, path: _, message, help } = diagnostic;
        edit.edit_text(&format!("diagnostics/{index}/message"), message)?;
        edit.edit_optional_text(&format!("diagnostics/{index}/help"), help)?;
    }
    Ok(())
}

/// Changes a query, if queries are encrypted.
pub(crate) fn edit_query(edit: &Edit<'_>, query: &mut String) -> Edited {
    if edit.skips_query(query) {
        return Ok(());
    }
    edit.edit_text("query", query)
}

/// Encrypts all values of a step as one value, which replaces its parameters, or decrypts this
/// value. A plan is parsed even without the key, so a condition that can be parsed replaces the
/// secret condition.
fn edit_step(edit: &Edit<'_>, field: &str, step: &mut UncheckedStep) -> Edited {
    let UncheckedStep {
        id: _,
        tool: _,
        parameters,
        depends_on: _,
        output_mapping: _,
        policy: _,
        plan: _,
        inputs,
        when,
        for_each: _,
        compensate,
    } = step;
    let mut undo = compensate.as_mut().map(|undo| {
        let UncheckedCompensation { tool: _, parameters, policy: _ } = &mut **undo;
        parameters
    });
    if edit.is_rekeying() && parameters.as_str().is_some_and(is_sealed) {
        return rekey_step(edit, field, step);
    }
    if edit.is_sealing() || edit.is_rekeying() {
        if parameters.as_str().is_some_and(|text| edit.should_keep(text)) {
            return Ok(());
        }
        let secrets = StepSecrets {
            parameters: Value::clone(parameters),
            when: json!(when),
            inputs: json!(inputs),
            undo: undo.as_deref().map_or(Value::Null, |undo| Value::clone(undo)),
        };
        if secrets.is_empty() {
            return Ok(());
        }
        let mut content = secrets.into_value();
        edit.edit_value(field, &mut content)?;
        *parameters = Arc::new(content);
        let key = edit.ring().active_id().unwrap_or_default();
        *when = when.take().map(|_| locked_condition(key));
        *inputs = None;
        if let Some(undo) = undo {
            *undo = Arc::default();
        }
        return Ok(());
    }
    if !parameters.as_str().is_some_and(is_sealed) {
        return Ok(());
    }
    let mut content = Value::clone(parameters);
    edit.edit_value(field, &mut content)?;
    let Some(secrets) = StepSecrets::from_value(&mut content) else {
        // The key is missing. The content is then a value that says so, and readers get it instead
        // of the secret.
        let locked = Arc::new(content);
        if let Some(undo) = &mut undo {
            **undo = Arc::clone(&locked);
        }
        *parameters = locked;
        return Ok(());
    };
    *parameters = Arc::new(secrets.parameters);
    *when = secrets.when.as_str().map(str::to_owned);
    *inputs = Some(secrets.inputs).filter(|inputs| !inputs.is_null()).map(Arc::new);
    if let Some(undo) = undo {
        *undo = Arc::new(secrets.undo);
    }
    Ok(())
}

/// Encrypts the values of a step with the active key. They stay in one value.
fn rekey_step(edit: &Edit<'_>, field: &str, step: &mut UncheckedStep) -> Edited {
    edit.edit_shared_value(field, &mut step.parameters)?;
    let sealed = step.parameters.as_str().and_then(SealedText::parse);
    // The condition names the key, too. It stays if the values could not be decrypted.
    if let Some(SealedText { key, .. }) = sealed {
        step.when = step.when.take().map(|_| locked_condition(key));
    }
    Ok(())
}

/// Returns a condition that replaces a secret condition. It is never evaluated, because a worker
/// decrypts the plan first.
fn locked_condition(key: &str) -> String {
    format!("\"{LOCKED_FIELD}\" == \"{key}\"")
}

impl StepSecrets {
    fn is_empty(&self) -> bool {
        let Self { parameters, when, inputs, undo } = self;
        let is_empty = |value: &Value| match value {
            Value::Object(fields) => fields.is_empty(),
            other => other.is_null(),
        };
        is_empty(parameters) && when.is_null() && inputs.is_null() && is_empty(undo)
    }

    fn into_value(self) -> Value {
        Value::Array(vec![self.parameters, self.when, self.inputs, self.undo])
    }

    /// Returns `None` for a value that is not the content of a step.
    fn from_value(value: &mut Value) -> Option<Self> {
        let [parameters, when, inputs, undo] = value.as_array_mut()?.as_mut_slice() else {
            return None;
        };
        Some(Self {
            parameters: parameters.take(),
            when: when.take(),
            inputs: inputs.take(),
            undo: undo.take(),
        })
    }
}

pub(crate) fn edit_record(edit: &Edit<'_>, record: &mut Record) -> Edited {
    match record.kind.secret_parts() {
        SecretParts::None => Ok(()),
        SecretParts::Queries if edit.skips_query(record.value.as_str().unwrap_or_default()) => {
            Ok(())
        }
        SecretParts::Whole | SecretParts::Queries => {
            edit.edit_shared_value("value", &mut record.value)
        }
        SecretParts::Fields(fields) => {
            let mut value = Value::clone(&record.value);
            for field in fields {
                match value.get_mut(field.name) {
                    Some(Value::String(text)) if field.is_text => {
                        edit.edit_text(field.name, text)?;
                    }
                    Some(part) => edit.edit_value(field.name, part)?,
                    None => (),
                }
            }
            if edit.is_changed() {
                record.value = Arc::new(value);
            }
            Ok(())
        }
    }
}
