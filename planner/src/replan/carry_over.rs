//! Copies fields of the earlier plan into a new draft, because a model does not write them.

use crate::{
    catalog::Catalog,
    draft::{Draft, DraftStep, SubDraft},
};

/// Adds retries, timeouts, the compensation and other settings of the earlier plan to the steps of
/// a draft that have the same id and call the same tool. A value that the draft has stays. If a
/// step of the earlier plan needed an approval, every step that calls the same tool needs one.
///
/// `catalog` is the catalog with which the draft is compiled.
pub fn carry_over(draft: &mut Draft, earlier: &Draft, catalog: &Catalog) {
    for step in &mut draft.tools {
        let called = called_tool(step, catalog);
        let same_calls =
            || earlier.tools.iter().filter(|step| self::called_tool(step, catalog) == called);
        if same_calls().any(|step| step.requires_approval == Some(true)) {
            step.requires_approval = Some(true);
        }
        let id = step.id.as_ref().or(step.name.as_ref()).or(step.tool_name.as_ref());
        let Some(was) = same_calls().find(|step| step.id.as_ref() == id) else { continue };
        keep_field(&mut step.compensate, was.compensate.as_ref());
        keep_field(&mut step.retry, was.retry.as_ref());
        keep_field(&mut step.timeout_ms, was.timeout_ms.as_ref());
        keep_field(&mut step.idle_timeout_ms, was.idle_timeout_ms.as_ref());
        keep_field(&mut step.cache_ttl_ms, was.cache_ttl_ms.as_ref());
        keep_field(&mut step.strict_templates, was.strict_templates.as_ref());
        keep_field(&mut step.output_mapping, was.output_mapping.as_ref());
        if step.for_each.is_some() {
            keep_field(&mut step.max_parallel, was.max_parallel.as_ref());
        }
    }
}

fn keep_field<T: Clone>(field: &mut Option<T>, earlier: Option<&T>) {
    if field.is_none() {
        *field = earlier.cloned();
    }
}

fn called_tool(step: &DraftStep, catalog: &Catalog) -> Option<String> {
    if let Some(SubDraft::Named(plan)) = &step.plan {
        return Some(format!("plan {plan}"));
    }
    let name = step.name.as_deref().or(step.tool_name.as_deref())?;
    let found = catalog.find(name).map(|tool| tool.definition.qualified_name().to_string());
    Some(found.unwrap_or_else(|| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::writer::tests::make_catalog;

    fn carried_over(earlier: Value, written: Value) -> Value {
        let draft = |steps: Value| -> Draft {
            serde_json::from_value(json!({ "tools": [steps] })).unwrap()
        };
        let mut written = draft(written);
        carry_over(&mut written, &draft(earlier), &make_catalog());
        serde_json::to_value(&written.tools[0]).unwrap()
    }

    #[test]
    fn an_approval_is_carried_over_under_any_tool_name() {
        let earlier =
            || json!({ "id": "pay", "name": "blog.createAuthor", "requiresApproval": true });
        for written in [
            json!({ "id": "pay", "name": "createAuthor" }),
            json!({ "id": "pay_again", "toolName": "createAuthor", "requiresApproval": false }),
            json!({ "name": "blog.createAuthor" }),
        ] {
            let is = carried_over(earlier(), written.clone());
            assert_eq!(is["requiresApproval"], true, "{written}");
        }
        let other = carried_over(earlier(), json!({ "id": "pay", "name": "listAuthors" }));
        assert_eq!(other.get("requiresApproval"), None);
    }

    #[test]
    fn a_replanned_step_keeps_the_settings_it_does_not_name() {
        let undo = json!({ "name": "createBlog", "parameters": {} });
        let earlier = || {
            json!({
                "id": "createAuthor", "name": "blog.createAuthor", "compensate": undo,
                "retry": { "maxAttempts": 3 }, "timeoutMs": 9, "idleTimeoutMs": 8, "cacheTtlMs": 7,
                "maxParallel": 6, "outputMapping": { "_id": "author" },
            })
        };
        let is = carried_over(earlier(), json!({ "name": "createAuthor", "timeoutMs": 1 }));
        assert_eq!(is["compensate"], undo);
        assert_eq!(is["retry"], json!({ "maxAttempts": 3 }));
        assert_eq!((&is["timeoutMs"], &is["idleTimeoutMs"]), (&json!(1), &json!(8)));
        assert_eq!((&is["cacheTtlMs"], is.get("maxParallel")), (&json!(7), None));
        assert_eq!(is["outputMapping"], json!({ "_id": "author" }));
        let renamed = carried_over(earlier(), json!({ "id": "other", "name": "createAuthor" }));
        assert_eq!(renamed.get("compensate"), None, "the draft has another step");
    }
}
