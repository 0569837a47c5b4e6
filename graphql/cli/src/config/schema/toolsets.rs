use serde_json::{Value, json};

use super::builder::{
    any_of, boolean_schema, choice_schema, integer_schema, list_schema, map_schema, object_schema,
    text_schema,
};

pub(super) fn definitions() -> Value {
    json!({
        "toolset": toolset_schema(),
        "tool": tool_schema(),
        "command": command_schema(),
        "httpCall": http_call_schema(),
        "confinement": confinement_schema(),
        "mcp": mcp_schema(),
        "oauth": oauth_schema(),
        "openapi": openapi_schema(),
        "graphql": graphql_schema(),
        "textOrSecret": text_or_secret_schema(),
        "secret": secret_schema(),
    })
}

fn refer_to(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn texts_schema(about: &str) -> Value {
    list_schema(json!({ "type": "string" }), about)
}

fn variables_schema() -> Value {
    map_schema(refer_to("textOrSecret"), "Variables to set.")
}

fn headers_schema() -> Value {
    map_schema(refer_to("textOrSecret"), "Headers of every request.")
}

fn seconds_schema() -> Value {
    integer_schema(
        0,
        u64::from(u32::MAX),
        "Most seconds for an answer. Default: the step's timeout.",
    )
}

fn secret_schema() -> Value {
    let from = |source: &str, about: &str| {
        object_schema(
            "",
            &[source],
            json!({
                source: text_schema(about),
                "prefix": text_schema("A text before the value, such as `Bearer `."),
            }),
        )
    };
    any_of(
        "The value of an environment variable, or the content of a file.",
        vec![
            from("secret", "The name of the variable."),
            from("secret_file", "A path, from the folder of this file."),
        ],
    )
}

fn text_or_secret_schema() -> Value {
    any_of(
        "A text, or a secret.",
        vec![json!({ "type": ["string", "number", "boolean"] }), refer_to("secret")],
    )
}

fn toolset_schema() -> Value {
    object_schema(
        "A toolset.",
        &["name", "source"],
        json!({
            "name": text_schema("The name, such as in `set.tool`."),
            "description": text_schema("A text for people and models."),
            "active": boolean_schema("Plans may use the tools. Default: true."),
            "source": source_schema(),
            "context": text_schema("The context whose data the condition reads."),
            "condition": text_schema("A condition in CEL. The toolset exists while it holds."),
        }),
    )
}

fn source_schema() -> Value {
    let effects = || {
        map_schema(
            choice_schema(&["read", "idempotent", "once"], "The effect of a second call."),
            "Effects by patterns of tool names. The first match counts.",
        )
    };
    let source = |kind: &str, schema: Value| {
        object_schema("", &[kind], json!({ kind: schema, "effects": effects() }))
    };
    any_of(
        "The source of the tools: a map with one kind.",
        vec![
            source("mcp", refer_to("mcp")),
            source("openapi", refer_to("openapi")),
            source("graphql", refer_to("graphql")),
            source("tools", list_schema(refer_to("tool"), "Commands and HTTP calls.")),
            builtin_schema(),
        ],
    )
}

fn builtin_schema() -> Value {
    let kinds = ["code_tools", "file_tools", "system_tools", "web_tools", "memory_tools"];
    object_schema(
        "",
        &["builtin"],
        json!({
            "builtin": choice_schema(&kinds, "Built-in tools."),
            "root": text_schema("The folder that the tools see. Default: the folder of this file."),
            "git": choice_schema(&["refused", "allowed"], "Changes of `.git`. Default: `refused`."),
            "system": object_schema("Settings of `system_tools`.", &[], json!({
                "confine": refer_to("confinement"),
                "kill_any": boolean_schema("`process_kill` may end processes that Faber did not \
                    start. Default: false."),
            })),
            "web": object_schema("Settings of `web_tools`.", &[], json!({
                "allow_private": boolean_schema("Tools may reach private addresses. Default: false."),
                "timeout_seconds": integer_schema(0, u32::MAX.into(), "Most seconds for an answer. \
                    Default: 30."),
                "max_bytes": integer_schema(0, u32::MAX.into(), "Most bytes of an answer. Default: \
                    4194304."),
                "duckduckgo": text_schema("The page for web searches."),
                "docs": text_schema("The page for searches in documentation."),
                "github": text_schema("The address of GitHub's API."),
                "stack_overflow": text_schema("The address of Stack Exchange's API."),
                "wikipedia": text_schema("The address of a wiki."),
            })),
        }),
    )
}

fn tool_schema() -> Value {
    object_schema(
        "A tool.",
        &["name"],
        json!({
            "name": text_schema("The name of the tool."),
            "description": text_schema("A text for people and models."),
            "examples": texts_schema("Sentences with which people ask for the tool."),
            "parameters": json!({ "type": "object", "description": "The JSON Schema of the parameters." }),
            "outputSchema": json!({ "type": "object", "description": "The JSON Schema of the output." }),
            "effect": choice_schema(&["read", "idempotent", "once"], "The effect of a second call. \
                Default: `once`, or by the HTTP method."),
            "run": any_of("The command, or the HTTP call.", vec![
                refer_to("command"),
                object_schema("", &["http"], json!({ "http": refer_to("httpCall") })),
            ]),
        }),
    )
}

fn command_schema() -> Value {
    object_schema(
        "A command.",
        &["command"],
        json!({
            "command": any_of("A program and its arguments. `{{name}}` stands for a parameter.", vec![
                json!({ "type": "string" }),
                json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }),
            ]),
            "args": texts_schema("More arguments."),
            "cwd": text_schema("The working folder. Default: the folder of this file."),
            "env": variables_schema(),
            "pass": texts_schema("Variables of Faber's environment to pass on."),
            "confine": refer_to("confinement"),
        }),
    )
}

fn http_call_schema() -> Value {
    let methods = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"];
    object_schema(
        "An HTTP call. `{{name}}` stands for a parameter.",
        &["url"],
        json!({
            "method": choice_schema(&methods, "The method. Default: `GET`."),
            "url": text_schema("The address. Its host is no template."),
            "headers": headers_schema(),
            "query": any_of("Fields of the query, or all parameters that no other field names.", vec![
                json!({ "const": "rest" }),
                map_schema(refer_to("textOrSecret"), "Fields."),
            ]),
            "body": json!({ "description": "JSON with templates, or `rest` for the other parameters." }),
            "timeout_seconds": seconds_schema(),
        }),
    )
}

fn confinement_schema() -> Value {
    let number = |about: &str| integer_schema(0, u64::MAX, about);
    object_schema(
        "The sandbox of a command.",
        &[],
        json!({
            "write": texts_schema("Files and folders that the command may change."),
            "read": texts_schema("Files and folders that the command may read, besides the system's."),
            "user": text_schema("The user that runs the command. Default: Faber's user."),
            "network": boolean_schema("Allow the network. Default: false."),
            "sockets": boolean_schema("Allow connections to socket files. Default: false."),
            "required": boolean_schema("Refuse the command on machines without a sandbox. Default: \
                true."),
            "cpu_seconds": number("CPU seconds of one process."),
            "memory_bytes": number("Bytes of data of one process."),
            "file_bytes": number("Bytes of one file."),
            "open_files": number("Open files of one process."),
            "processes": number("Processes and threads at the same time."),
            "pass": texts_schema("Variables of Faber's environment to pass on."),
        }),
    )
}

fn mcp_schema() -> Value {
    let shared = |mut fields: Value| {
        fields["roots"] = texts_schema("Folders that the server is asked to work in.");
        fields["elicitation"] =
            choice_schema(&["defaults"], "Answer forms with the defaults that they propose.");
        fields
    };
    any_of(
        "An MCP server: a command, or an address.",
        vec![
            object_schema(
                "",
                &["command"],
                shared(json!({
                    "command": text_schema("The program. `faber` is the running binary."),
                    "args": texts_schema("Arguments."),
                    "pass": texts_schema("Variables of Faber's environment to pass on."),
                    "env": variables_schema(),
                    "cwd": text_schema("The working folder. Default: the folder of this file."),
                })),
            ),
            object_schema(
                "",
                &["url"],
                shared(json!({
                    "url": text_schema("The address of the endpoint."),
                    "transport": choice_schema(&["http", "sse"], "The transport. Default: detected."),
                    "headers": headers_schema(),
                    "auth": any_of("The login.", vec![json!({ "const": "oauth" }), refer_to("oauth")]),
                })),
            ),
        ],
    )
}

fn oauth_schema() -> Value {
    let grants = ["authorization_code", "client_credentials", "cross_app"];
    object_schema(
        "A login with OAuth.",
        &[],
        json!({
            "grant": choice_schema(&grants, "Default: `authorization_code`, with which a person logs \
                in."),
            "issuer": text_schema("The expected authorization server."),
            "client_id": text_schema("The id of a registered client."),
            "client_secret": refer_to("secret"),
            "private_key": refer_to("secret"),
            "client_metadata": text_schema("The https address of the client's document."),
            "scopes": texts_schema("The scopes to request."),
            "callback_port": integer_schema(0, u16::MAX.into(), "The port for the browser's answer."),
            "identity": object_schema(
                "The identity provider of `cross_app`.",
                &["issuer", "token_endpoint", "client_id", "id_token"],
                json!({
                    "issuer": text_schema("The identity provider."),
                    "token_endpoint": text_schema("The address that exchanges tokens."),
                    "client_id": text_schema("The id of the client at the identity provider."),
                    "client_secret": refer_to("secret"),
                    "id_token": refer_to("secret"),
                }),
            ),
        }),
    )
}

fn openapi_schema() -> Value {
    let user = object_schema(
        "A user.",
        &["username", "password"],
        json!({
            "username": refer_to("textOrSecret"),
            "password": refer_to("textOrSecret"),
        }),
    );
    object_schema(
        "The operations of an OpenAPI document.",
        &["document"],
        json!({
            "document": text_schema("A file, or an address."),
            "base_url": text_schema("The address of the API. Default: `servers` of the document."),
            "headers": headers_schema(),
            "auth": map_schema(
                any_of("A credential.", vec![refer_to("textOrSecret"), user]),
                "Credentials by the names of the document's security schemes.",
            ),
            "include": texts_schema("Patterns of tool names. Default: all."),
            "tags": texts_schema("Tags, of which a tool must have one. Default: all."),
            "timeout_seconds": seconds_schema(),
        }),
    )
}

fn graphql_schema() -> Value {
    object_schema(
        "The queries and mutations of a GraphQL endpoint.",
        &["url"],
        json!({
            "url": text_schema("The address of the endpoint."),
            "headers": headers_schema(),
            "auth": refer_to("textOrSecret"),
            "depth": integer_schema(1, 6, "Levels of objects to select. Default: 2."),
            "include": texts_schema("Patterns of tool names. Default: all."),
            "timeout_seconds": seconds_schema(),
        }),
    )
}
