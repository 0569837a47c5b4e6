//! The JSON Schema of plan files, for editors.
//!
//! The compiler checks more than this schema, such as the names of tools.

use serde_json::{Value, json};
use shared::limits;

use super::policy::{MAX_MULTIPLIER, MAX_PARALLEL, MAX_TIME_MS, ON_ERROR_RULES};

pub fn plan_file_schema() -> Value {
    let mut schema = draft_schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("A plan of Faber");
    schema["$defs"] = json!({
        "plan": draft_schema(),
        "step": step_schema(),
        "compensation": compensation_schema(),
        "retry": retry_schema(),
    });
    schema
}

fn text_schema(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn flag_schema(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

fn range_schema(minimum: u64, maximum: u64, about: &str) -> Value {
    json!({ "type": "integer", "minimum": minimum, "maximum": maximum, "description": about })
}

fn time_schema(minimum: u64, about: &str) -> Value {
    range_schema(minimum, MAX_TIME_MS, about)
}

fn parameters_schema() -> Value {
    json!({
        "type": "object",
        "description": "The parameters of the tool. Strings may contain templates such as \
                        `{{step.path}}`.",
    })
}

fn draft_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["tools"],
        "properties": {
            "query": text_schema("The purpose in words. Default: the names of the tools."),
            "requestId": text_schema("The request whose next version this plan becomes: `req_…`."),
            "tools": {
                "type": "array",
                "description": "The steps, in any order.",
                "items": { "$ref": "#/$defs/step" },
            },
            "executionOrder": {
                "type": "array",
                "description": "Step ids in the expected order. Faber computes the order, and \
                                warns if this order differs.",
                "items": { "type": "string" },
            },
        },
    })
}

fn step_schema() -> Value {
    let rules: Vec<&str> = ON_ERROR_RULES.iter().map(|rule| rule.as_str()).collect();
    let kinds = ["name", "toolName", "plan"].map(|kind| json!({ "required": [kind] }));
    json!({
        "type": "object",
        "additionalProperties": false,
        "oneOf": kinds,
        "properties": {
            "id": text_schema("The id of the step. Default: the name of its tool."),
            "name": text_schema("The tool: `set.name`, or `name`."),
            "toolName": text_schema("The tool, like `name`."),
            "plan": {
                "description": "A plan in place of a tool: its id, its saved name, or the plan.",
                "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/plan" }],
            },
            "parameters": parameters_schema(),
            "dependsOn": {
                "description": "Steps that must finish first. Templates add their own steps.",
                "anyOf": [
                    { "type": "string" },
                    { "type": "array", "items": { "type": "string" } },
                    { "type": "null" },
                ],
            },
            "outputMapping": {
                "type": "object",
                "description": "Variables from the output: a path in the output, and the name of \
                                the variable.",
                "additionalProperties": { "type": "string" },
            },
            "retry": { "$ref": "#/$defs/retry" },
            "timeoutMs": time_schema(1, "Time limit of one attempt. Default: 300000."),
            "onError": {
                "enum": rules,
                "description": "The consequence of a failure. Default: `fail`.",
            },
            "requiresApproval": flag_schema("A person must approve the step before it starts."),
            "when": text_schema("A condition in CEL. If it is false, the step is skipped."),
            "forEach": text_schema("A template of a list. The step runs once for each item."),
            "maxParallel": range_schema(1, MAX_PARALLEL, "Items that run at the same time."),
            "compensate": { "$ref": "#/$defs/compensation" },
            "idleTimeoutMs": time_schema(1, "Time limit without progress."),
            "cacheTtlMs": time_schema(1, "Age up to which the output of an earlier call is used."),
            "strictTemplates": flag_schema("A missing field in a template fails the step."),
        },
    })
}

fn compensation_schema() -> Value {
    json!({
        "type": "object",
        "description": "The call that undoes the step.",
        "additionalProperties": false,
        "oneOf": [{ "required": ["name"] }, { "required": ["toolName"] }],
        "properties": {
            "name": text_schema("The tool: `set.name`, or `name`."),
            "toolName": text_schema("The tool, like `name`."),
            "parameters": parameters_schema(),
            "retry": { "$ref": "#/$defs/retry" },
            "timeoutMs": time_schema(1, "Time limit of one attempt. Default: 300000."),
        },
    })
}

fn retry_schema() -> Value {
    let attempts = u64::from(limits::ATTEMPTS);
    json!({
        "type": "object",
        "description": "The number of attempts, and the delays between them.",
        "additionalProperties": false,
        "properties": {
            "maxAttempts": range_schema(1, attempts, "Most attempts. Default: 1."),
            "backoffMs": time_schema(0, "Delay before the second attempt. Default: 100."),
            "maxBackoffMs": time_schema(0, "Longest delay. Default: 30000."),
            "multiplier": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_MULTIPLIER,
                "description": "Factor by which each delay grows. Default: 2.",
            },
            "jitter": flag_schema("Draws each delay between its half and its whole. Default: true."),
        },
    })
}

#[cfg(test)]
mod tests {
    use shared::schema::Schema;

    use super::{
        super::parse::{COMPENSATION_FIELDS, DRAFT_FIELDS, RETRY_FIELDS, STEP_FIELDS, parse_value},
        *,
    };

    #[test]
    fn the_schema_has_every_field_that_the_reader_has() {
        let schema = plan_file_schema();
        for (place, fields) in [
            ("/properties", &DRAFT_FIELDS[..]),
            ("/$defs/plan/properties", &DRAFT_FIELDS),
            ("/$defs/step/properties", &STEP_FIELDS),
            ("/$defs/compensation/properties", &COMPENSATION_FIELDS),
            ("/$defs/retry/properties", &RETRY_FIELDS),
        ] {
            let known = schema.pointer(place).and_then(Value::as_object).unwrap();
            let mut known: Vec<&str> = known.keys().map(String::as_str).collect();
            let mut fields = fields.to_vec();
            known.sort_unstable();
            fields.sort_unstable();
            assert_eq!(known, fields, "{place}");
        }
    }

    #[test]
    fn the_schema_accepts_what_the_reader_accepts() {
        let schema = Schema::new(&plan_file_schema()).unwrap();
        let step = |fields: Value| json!({ "tools": [fields] });
        for (plan, is_valid) in [
            (json!({ "tools": [] }), true),
            (step(json!({ "name": "a", "dependsOn": null, "retry": { "maxAttempts": 3 } })), true),
            (step(json!({ "plan": { "tools": [{ "toolName": "x" }] }, "dependsOn": "b" })), true),
            (step(json!({ "plan": "saved", "outputMapping": { "a.b": "c" } })), true),
            (step(json!({ "name": "a", "compensate": { "name": "b", "timeoutMs": 5 } })), true),
            (json!({}), false),
            (step(json!({ "name": "a", "retries": 3 })), false),
            (step(json!({ "name": "a", "retry": { "attempts": 3 } })), false),
            (step(json!({ "name": "a", "timeoutMs": "soon" })), false),
            (step(json!({ "plan": { "tools": [{ "nmae": "x" }] } })), false),
            (step(json!({ "name": "a", "compensate": { "nmae": "b" } })), false),
        ] {
            assert_eq!(schema.complaint(&plan).is_none(), is_valid, "{plan}");
            let is_read = parse_value(plan.clone()).is_ok_and(|draft| draft.notices.is_empty());
            // The reader leaves the fields of a compensation to the compiler.
            assert!(is_read == is_valid || plan.to_string().contains("compensate"), "{plan}");
        }
    }
}
