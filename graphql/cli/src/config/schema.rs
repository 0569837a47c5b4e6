//! The JSON Schema of the configuration file, for editors.
//!
//! Each setting has its own reader, which also explains mistakes. The schema is written beside the
//! readers, and a test compares the keys of each object with the keys that its reader knows.

pub(super) mod builder;
mod toolsets;

#[cfg(test)]
mod tests;

use engine::{Guard, PlanCache};
use planner::{
    model::{ProviderKind, settings},
    writer,
};
use serde_json::{Value, json};

use self::builder::{
    any_of, boolean_schema, choice_schema, integer_schema, list_schema, map_schema, number_schema,
    object_schema, text_schema, with_null,
};
use super::{
    limits::limits_schema,
    model::{MAX_PRICE, MAX_TIMEOUT_MS, MIN_TIMEOUT_MS},
};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Returns the JSON Schema of `faber.yaml`.
pub fn config_schema() -> Value {
    let mut schema = object_schema("The configuration of Faber.", &[], settings_schemas());
    schema["$schema"] = json!(DIALECT);
    schema["title"] = json!("The configuration of Faber");
    schema["$defs"] = toolsets::definitions();
    schema
}

fn settings_schemas() -> Value {
    let files =
        |about: &str| list_schema(text_schema("A path, from the folder of this file."), about);
    json!({
        "store": text_schema("`sqlite:PATH`, `mongodb://…` or `memory:`. Default: SQLite in the \
            data directory."),
        "planner": planner_schema(),
        "toolsets": list_schema(
            json!({ "$ref": "#/$defs/toolset" }),
            "The toolsets and their sources. Default: the demo.",
        ),
        "tools_files": files("JSON files that describe tools. They form the toolset `tools`."),
        "toolkit_files": files("YAML files that describe the toolkit."),
        "learning": boolean_schema("Learn from executions which tools follow each other and \
            which tools succeed for which queries. Default: true."),
        "selection": object_schema("The selection of tools.", &[], json!({
            "margin": number_schema(-2.0, 2.0, "The margin of a hit. Default: 0.01."),
        })),
        "embedding": embedding_schema(),
        "encryption": encryption_schema(),
        "limits": limits_schema(call_limits_schema()),
        "retention": retention_schema(),
        "contexts": map_schema(
            json!({ "type": "object" }),
            "Data for conditions of toolsets, by the name of the context.",
        ),
        "access": access_schema(),
        "server": server_schema(),
        "log_format": choice_schema(&["human", "json"], "The form of the log. Default: `human`."),
    })
}

fn server_schema() -> Value {
    let names = |item: &str, about: &str| list_schema(text_schema(item), about);
    object_schema(
        "The names, origins and path under which clients reach `faber serve`.",
        &[],
        json!({
            "allowed_hosts": names("A host such as `faber.example`, with a port or without.",
                "Further values of the `Host` header that the server accepts."),
            "allowed_origins": names("An origin such as `https://app.example`.",
                "Sites whose pages may send requests to the server."),
            "path_prefix": text_schema("The path of the server behind a proxy, such as `/faber`."),
        }),
    )
}

fn planner_schema() -> Value {
    let mut fields = model_fields();
    fields["fallback"] =
        object_schema("The model that answers if this one fails.", &["provider"], model_fields());
    // Also `false`, because YAML 1.1 reads `off` as false.
    let or_false = |words: Vec<&str>, about: &str| {
        let mut words: Vec<Value> = words.into_iter().map(Value::from).collect();
        words.push(json!(false));
        json!({ "enum": words, "description": about })
    };
    fields["cache"] = or_false(
        PlanCache::ALL.iter().map(|rule| rule.as_str()).collect(),
        "Reuse of the plan of the same query. Default: `exact`.",
    );
    fields["guard"] = or_false(
        Guard::ALL.iter().map(|rule| rule.as_str()).collect(),
        "The rule for calls of a model's plan that the query does not ask for, or whose values it does \
         not contain. Default: `approve`.",
    );
    any_of(
        "The planner, and the model of agents. Default: `offline`.",
        vec![json!({ "const": "offline" }), object_schema("", &[], fields)],
    )
}

fn model_fields() -> Value {
    let providers: Vec<&str> = ["offline"].into_iter().chain(ProviderKind::names()).collect();
    let price = |about: &str| number_schema(0.0, MAX_PRICE, about);
    json!({
        "provider": choice_schema(&providers, "`offline`, or the protocol of a model."),
        "model": text_schema("The model's name at the provider."),
        "base_url": text_schema("The address before `/chat/completions`. Default: the provider's."),
        "api_key_env": text_schema("The variable that has the key. Default: the provider's."),
        "timeout_ms": integer_schema(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS, "Time limit of one answer. \
            Default: 120000."),
        "max_retries": integer_schema(0, settings::MAX_RETRIES.into(), "Retries of an unanswered \
            question. Default: 3."),
        "max_repairs": integer_schema(0, writer::MAX_REPAIRS.into(), "Repairs of a draft. Default: \
            3, and 1 for `local`."),
        "max_tokens": integer_schema(1, 10_000_000, "Most tokens of an answer."),
        "temperature": number_schema(0.0, 2.0, "The sampling temperature."),
        "price": object_schema("The cost of a million tokens.", &["input", "output"], json!({
            "input": price("Cost of tokens that are sent."),
            "output": price("Cost of tokens of answers."),
        })),
        "structured": boolean_schema("Ask for structured output. Default: true."),
        "native_tools": boolean_schema("Agents call tools through the provider's API. Default: \
            true."),
    })
}

fn embedding_schema() -> Value {
    object_schema(
        "The embedder. Default: the built-in model.",
        &[],
        json!({
            "builtin": boolean_schema("True: the built-in model. False: no embedder."),
            "model": text_schema("A folder with a model, a fetched model, or the server's model."),
            "base_url": text_schema("The address of a server with OpenAI's protocol."),
            "api_key_env": text_schema("The variable that has the server's key."),
        }),
    )
}

fn encryption_schema() -> Value {
    let key = object_schema(
        "A key. It has one of `env`, `file` and `command`.",
        &["id"],
        json!({
            "id": text_schema("The name of the key in each encrypted value."),
            "env": text_schema("The variable that has the key."),
            "file": text_schema("The file that has the key."),
            "command": list_schema(text_schema("A word."), "A program and its arguments. It prints the \
                key."),
        }),
    );
    object_schema(
        "The keys that encrypt the store.",
        &["keys"],
        json!({
            "keys": list_schema(key, "All keys that values of the store need."),
            "active": text_schema("The id of the key for new values. Default: the only key."),
            "encrypt_queries": boolean_schema("Encrypt queries, too. Default: false."),
        }),
    )
}

fn call_limits_schema() -> Value {
    let rule = object_schema(
        "A limit.",
        &[],
        json!({
            "tool": text_schema("The tool: `set.name`."),
            "toolset": text_schema("The toolset whose calls are counted together."),
            "key": text_schema("A path in the parameters. Each value is counted separately."),
            "concurrency": integer_schema(1, u32::MAX.into(), "Calls at the same time."),
            "rate": text_schema("Calls in a period: `5/s`, `100/min`, `1000/h`, `1/day`."),
        }),
    );
    list_schema(rule, "Limits on calls across all nodes.")
}

fn retention_schema() -> Value {
    let age = |about: &str| with_null(json!({ "type": "string", "description": about }));
    let ages = |mut fields: Value| {
        fields["age"] = age("The age of every finished execution: `30d`, `12h`, `90m`, `3600s`.");
        fields["succeeded"] = age("The age of executions that succeeded.");
        fields["failed"] = age("The age of executions that failed.");
        fields["cancelled"] = age("The age of cancelled executions.");
        fields
    };
    let rule = object_schema(
        "Ages of executions with certain labels.",
        &["labels"],
        ages(json!({
            "labels": map_schema(
                with_null(json!({ "type": "string" })),
                "Labels that an execution must have. Null stands for any value.",
            ),
        })),
    );
    any_of(
        "The age at which finished executions are removed. Default: never.",
        vec![
            json!({ "type": ["string", "null"] }),
            object_schema(
                "",
                &[],
                ages(json!({
                    "audit": age("The age of audit entries. Null keeps them. Default: `90d`."),
                    "rules": list_schema(rule, "Other ages for executions with certain labels."),
                })),
            ),
        ],
    )
}

fn access_schema() -> Value {
    let token = object_schema(
        "A caller of the server.",
        &["name", "token_env", "role"],
        json!({
            "name": text_schema("The name of the token."),
            "token_env": text_schema("The variable that has the token."),
            "role": choice_schema(&["viewer", "operator", "admin"], "The role of the caller."),
            "tools": list_schema(text_schema("A pattern: `set.name`, `set.*` or `*`."), "The tools that \
                the caller may use. Default: all."),
            "limits": object_schema("Limits and quotas of the caller.", &[], json!({
                "calls": text_schema("All calls in a period, such as `100/h`."),
                "per_tool": text_schema("Calls of each tool in a period, such as `10/min`."),
                "starts": text_schema("Starts of executions in a period, such as `100/min`."),
                "executions": {
                    "description": "The number of executions that may be active at once.",
                    "type": "integer",
                    "minimum": 1,
                },
                "stored_bytes": {
                    "description": "The bytes of logs, inputs and blobs of the caller's executions: \
                        a number, or a size such as `10GiB`.",
                    "type": ["integer", "string"],
                    "minimum": 1,
                },
            })),
            "see": choice_schema(&["own", "all"], "The requests and executions that the caller sees. \
                Default: all."),
        }),
    );
    object_schema(
        "Who may use the server. Default: this machine only.",
        &[],
        json!({
            "tokens": list_schema(token, "The callers of `faber serve`."),
            "secrets": list_schema(text_schema("The name of a variable."), "The variables that added \
                toolsets may use."),
        }),
    )
}
