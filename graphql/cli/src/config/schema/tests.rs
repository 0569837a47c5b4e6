use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use engine::yaml;
use planner::compile::plan_file_schema;
use serde_json::{Map, Value};
use shared::schema::Schema;

use super::{super::file, config_schema};
use crate::plan_test::schema::test_file_schema;

/// A key that no reader knows and that is similar to no known key.
const UNKNOWN_KEY: &str = "zzzzzz";

const SAMPLE: &str = "
store: 'memory:'
planner:
  provider: openai
  model: m
  guard: strict
  price: { input: 1, output: 2 }
  fallback: { provider: ollama, model: n }
selection: { margin: 0.5 }
embedding: { builtin: true }
encryption: { keys: [{ id: a, env: KEY }] }
learning: false
contexts: { shop: { open: true } }
log_format: json
log_level: info
limits: { lease_ms: 5000, calls: [{ tool: a.b, rate: 5/s }] }
retention: { failed: 7d, audit: null, rules: [{ labels: { keep: null }, age: 1d }] }
server:
  allowed_hosts: [faber.example]
  allowed_origins: [https://app.example]
  path_prefix: /faber
  tls: { cert_file: a.pem, key_file: a.key }
  oidc:
    issuer: https://login.example
    audience: faber
    rules: [{ claim: groups, value: ops, role: operator, limits: { calls: 5/s } }]
access:
  tokens:
    - { name: ci, token_env: CI, role: admin, limits: { calls: 5/s } }
    - { name: app, token_file: app.token, role: viewer }
toolsets:
  - name: a
    source:
      mcp: { command: x, env: { KEY: { secret: K }, FILE: { secret_file: k } } }
      effects: { '*': read }
  - name: b
    source:
      mcp:
        url: https://h/mcp
        auth:
          grant: cross_app
          client_id: c
          identity:
            issuer: https://i
            token_endpoint: https://i/token
            client_id: d
            id_token: { secret: T }
  - name: c
    source:
      openapi:
        document: pets.yaml
        auth: { basic: { username: u, password: { secret: P } } }
  - { name: d, source: { graphql: { url: 'https://h/graphql' } } }
  - name: e
    source: { builtin: system_tools, system: { confine: { write: [] } }, web: { docs: 'https://d' } }
  - name: f
    source:
      tools:
        - { name: t, run: { command: [date], confine: { network: true } } }
        - { name: u, run: { http: { url: 'https://h/x', query: rest } } }
";

/// Objects of the sample, and the keys about which the reader's message differs from the schema:
/// keys that only the schema has, and keys that only the message has.
const OBJECTS: [(&str, &[&str], &[&str]); 39] = [
    ("", &[], &[]),
    ("/planner", &["cache", "guard"], &[]),
    ("/planner/price", &[], &[]),
    ("/planner/fallback", &[], &["fallback"]),
    ("/selection", &[], &[]),
    ("/embedding", &[], &[]),
    ("/encryption", &[], &[]),
    ("/encryption/keys/0", &[], &[]),
    ("/limits", &[], &[]),
    ("/limits/calls/0", &[], &[]),
    ("/retention", &[], &[]),
    ("/server", &[], &[]),
    ("/server/oidc", &[], &[]),
    ("/server/oidc/rules/0", &[], &[]),
    ("/server/oidc/rules/0/limits", &[], &[]),
    ("/server/tls", &[], &[]),
    ("/retention/rules/0", &[], &[]),
    ("/access", &[], &[]),
    ("/access/tokens/0", &[], &["token_file"]),
    ("/access/tokens/1", &[], &["token_env"]),
    ("/access/tokens/0/limits", &[], &[]),
    ("/toolsets/0", &[], &[]),
    ("/toolsets/0/source", &["effects"], &["tools", "builtin", "openapi", "graphql"]),
    ("/toolsets/0/source/mcp", &[], &[]),
    ("/toolsets/0/source/mcp/env/KEY", &[], &[]),
    ("/toolsets/0/source/mcp/env/FILE", &[], &[]),
    ("/toolsets/1/source/mcp", &[], &[]),
    ("/toolsets/1/source/mcp/auth", &[], &[]),
    ("/toolsets/1/source/mcp/auth/identity", &[], &[]),
    ("/toolsets/2/source/openapi", &[], &[]),
    ("/toolsets/2/source/openapi/auth/basic", &[], &[]),
    ("/toolsets/3/source/graphql", &[], &[]),
    ("/toolsets/4/source", &[], &[]),
    ("/toolsets/4/source/system", &[], &[]),
    ("/toolsets/4/source/system/confine", &[], &[]),
    ("/toolsets/4/source/web", &[], &[]),
    ("/toolsets/5/source/tools/0", &[], &[]),
    ("/toolsets/5/source/tools/0/run", &["args"], &[]),
    ("/toolsets/5/source/tools/1/run/http", &[], &[]),
];

fn sample_with_unknown_key(pointer: &str) -> Value {
    let mut sample = yaml::parse(SAMPLE).unwrap();
    sample.pointer_mut(pointer).unwrap()[UNKNOWN_KEY] = Value::from(1);
    sample
}

fn keys_of_reader(pointer: &str) -> BTreeSet<String> {
    let text = sample_with_unknown_key(pointer).to_string();
    let mistakes = file::parse(&text, Path::new("/")).unwrap_err();
    let (_, list) = mistakes[0].reason.split_once("is unknown: ").unwrap();
    let is_key = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    list.split('`').skip(1).step_by(2).filter(is_key).map(str::to_owned).collect()
}

fn keys_of_schema(root: &Value, pointer: &str) -> BTreeSet<String> {
    let mut sample = &yaml::parse(SAMPLE).unwrap();
    let mut schemas = list_alternatives(root, root);
    for part in pointer.split('/').skip(1) {
        schemas.retain(|schema| allows_keys(schema, sample));
        sample = match sample {
            Value::Array(items) => &items[part.parse::<usize>().unwrap()],
            other => &other[part],
        };
        let inner = schemas.iter().flat_map(|schema| {
            let inner = [&schema["properties"][part], &schema["items"]];
            let inner = inner.into_iter().find(|inner| inner.is_object());
            list_alternatives(root, inner.unwrap_or(&schema["additionalProperties"]))
        });
        schemas = inner.collect();
    }
    schemas.retain(|schema| allows_keys(schema, sample));
    assert!(!schemas.is_empty(), "{pointer}: no schema allows the sample");
    let fields = schemas.iter().filter_map(|schema| schema["properties"].as_object());
    fields.flat_map(Map::keys).cloned().collect()
}

fn list_alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    if let Some(name) = schema["$ref"].as_str() {
        return list_alternatives(root, root.pointer(name.trim_start_matches('#')).unwrap());
    }
    match schema["anyOf"].as_array() {
        Some(schemas) => schemas.iter().flat_map(|one| list_alternatives(root, one)).collect(),
        None => vec![schema],
    }
}

fn allows_keys(schema: &Value, sample: &Value) -> bool {
    let Some(fields) = sample.as_object() else { return true };
    let has_any_key = schema["additionalProperties"].is_object();
    has_any_key || fields.keys().all(|key| schema["properties"].get(key).is_some())
}

#[test]
fn the_schema_has_every_key_that_the_readers_have() {
    let schema = config_schema();
    let checker = Schema::new(&schema).unwrap();
    assert!(file::parse(SAMPLE, Path::new("/")).is_ok());
    assert_eq!(checker.complaint(&yaml::parse(SAMPLE).unwrap()), None);
    for (pointer, only_schema, only_reader) in OBJECTS {
        let mut known = keys_of_reader(pointer);
        known.retain(|key| !only_reader.contains(&key.as_str()));
        known.extend(only_schema.iter().map(|&key| key.to_owned()));
        assert_eq!(keys_of_schema(&schema, pointer), known, "{pointer}");
        let refused = checker.complaint(&sample_with_unknown_key(pointer));
        assert!(refused.is_some(), "{pointer}: the schema allows an unknown key");
    }
}

#[test]
fn the_schema_refuses_values_that_the_readers_refuse() {
    let checker = Schema::new(&config_schema()).unwrap();
    for text in [
        "limits: { lease_ms: 1 }",
        "planner: openai",
        "planner: { provider: opnai, model: x }",
        "planner: { guard: loud }",
        "selection: { margin: 3 }",
        "log_format: xml",
        "log_level: 3",
        "access: { tokens: [{ name: a, token_env: A, token_file: a, role: admin }] }",
        "access: { tokens: [{ name: a, role: admin }] }",
        "toolsets: [{ name: a }]",
        "server: { tls: { cert_file: a } }",
        "store_file: 3",
        "toolsets: [{ name: a, source: {} }]",
        "toolsets: [{ name: a, source: { mcp: { args: [] } } }]",
        "toolsets: [{ name: a, source: { tools: [], effects: { x: often } } }]",
    ] {
        assert!(file::parse(text, Path::new("/")).is_err(), "{text}");
        assert!(checker.complaint(&yaml::parse(text).unwrap()).is_some(), "{text}");
    }
}

fn docs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_examples_of_the_documentation_fit_the_schema() {
    let checker = Schema::new(&config_schema()).unwrap();
    let mut count = 0;
    for folder in ["reference", "how-to", "tutorials"] {
        for entry in fs::read_dir(docs_folder().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for block in text.split("```yaml").skip(1) {
                let (block, _) = block.split_once("```").unwrap();
                let (_, block) = block.split_once('\n').unwrap();
                let Ok(Value::Object(fields)) = yaml::parse(block) else { continue };
                let is_config = fields.keys().all(|key| file::SETTING_KEYS.contains(&key.as_str()));
                if !is_config || block.contains('…') {
                    continue;
                }
                let complaint = checker.complaint(&Value::Object(fields));
                assert_eq!(complaint, None, "{}: {block}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count} examples were found");
}

/// Editors read the schemas in the repository. `FABER_BLESS=1 cargo test -p faber-cli schema`
/// renews them.
#[test]
#[expect(clippy::disallowed_methods, reason = "the variable is for tests only")]
fn the_golden_schemas_are_up_to_date() {
    for (name, schema) in [
        ("faber.schema.json", config_schema()),
        ("plan.schema.json", plan_file_schema()),
        ("test.schema.json", test_file_schema()),
    ] {
        let path = docs_folder().join("schemas").join(name);
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        if std::env::var("FABER_BLESS").is_ok_and(|value| value == "1") {
            fs::write(&path, &text).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert!(golden == text, "`docs/schemas/{name}` is stale: `FABER_BLESS=1` writes it");
    }
}
