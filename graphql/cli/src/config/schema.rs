//! The JSON Schema of the configuration file, for editors.

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
        "store_file": text_schema("A file that has the address of the store, in place of `store`."),
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
        "log_level": text_schema("The filter of the log, such as `info`. Default: warnings."),
    })
}

fn server_schema() -> Value {
    let names = |item: &str, about: &str| list_schema(text_schema(item), about);
    object_schema(
        "The names, origins, path, certificate and sign-in of `faber serve`.",
        &[],
        json!({
            "allowed_hosts": names("A host such as `faber.example`, with a port or without.",
                "Further values of the `Host` header that the server accepts."),
            "allowed_origins": names("An origin such as `https://app.example`.",
                "Sites whose pages may send requests to the server."),
            "path_prefix": text_schema("The path of the server behind a proxy, such as `/faber`."),
            "oidc": oidc_schema(),
            "tls": object_schema("The certificate of the server.", &["cert_file", "key_file"], json!({
                "cert_file": text_schema("The file of the certificate chain, in PEM."),
                "key_file": text_schema("The file of the private key, in PEM."),
            })),
        }),
    )
}

fn oidc_schema() -> Value {
    let rule = object_schema(
        "A rule. The first one that matches gives the rights.",
        &["claim", "value", "role"],
        json!({
            "claim": text_schema("The name of the claim, or a path such as `realm_access.roles`."),
            "value": any_of("The value of the claim, or one of its values.", vec![
                json!({ "type": ["string", "boolean", "number"] }),
            ]),
            "role": choice_schema(&["viewer", "operator", "admin"], "The role of the caller."),
            "see": choice_schema(&["own", "all"], "The requests and executions that the caller sees. \
                Default: all."),
            "tools": tools_schema(),
            "limits": caller_limits_schema(),
        }),
    );
    let names = |about: &str| list_schema(text_schema("A name."), about);
    object_schema(
        "The issuer whose tokens and sign-in give access.",
        &["issuer", "audience", "rules"],
        json!({
            "issuer": text_schema("The address of the issuer, exactly as its tokens name it."),
            "audience": any_of("The audience that a token must name.", vec![
                json!({ "type": "string" }),
                names("Several audiences. A token must name one of them."),
            ]),
            "client_id": text_schema("Faber's id at the issuer. Without it, the page has no sign-in."),
            "client_secret_env": text_schema("The variable that has the client's secret."),
            "client_secret_file": text_schema("The file that has the client's secret."),
            "scopes": names("The scopes of the sign-in. Default: `openid`."),
            "name_claim": text_schema("The claim that names the caller. Default: `sub`."),
            "public_url": text_schema("The origin of the server, such as `https://faber.example`."),
            "rules": list_schema(rule, "The rights by claims."),
        }),
    )
}

fn tools_schema() -> Value {
    list_schema(
        text_schema("A pattern: `set.name`, `set.*` or `*`."),
        "The tools that the caller may use. Default: all.",
    )
}

fn caller_limits_schema() -> Value {
    object_schema(
        "Limits and quotas of the caller.",
        &[],
        json!({
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
        "api_key_file": text_schema("The file that has the key."),
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
            "api_key_file": text_schema("The file that has the server's key."),
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

/// A token has one of two sources, so there is a schema for each source.
fn token_schema() -> Value {
    let from = |source: &str, about: &str| {
        object_schema(
            "",
            &["name", source, "role"],
            json!({
                "name": text_schema("The name of the token."),
                source: text_schema(about),
                "role": choice_schema(&["viewer", "operator", "admin"], "The role of the caller."),
                "tools": list_schema(text_schema("A pattern: `set.name`, `set.*` or `*`."), "The \
                    tools that the caller may use. Default: all."),
                "limits": caller_limits_schema(),
                "see": choice_schema(&["own", "all"], "The requests and executions that the caller \
                    sees. Default: all."),
            }),
        )
    };
    any_of(
        "A caller of the server.",
        vec![
            from("token_env", "The variable that has the token."),
            from("token_file", "The file that has the token."),
        ],
    )
}

fn access_schema() -> Value {
    object_schema(
        "Who may use the server. Default: this machine only.",
        &[],
        json!({
            "tokens": list_schema(token_schema(), "The callers of `faber serve`."),
            "secrets": list_schema(text_schema("The name of a variable."), "The variables that added \
                toolsets may use."),
        }),
    )
}
