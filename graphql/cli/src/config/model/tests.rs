use super::*;
use engine::yaml;

fn parse(text: &str) -> Result<Option<PlannerConfig>, String> {
    read(Some(yaml::parse(text).unwrap()), Path::new("/etc/faber"))
}

fn parse_model(text: &str) -> ModelConfig {
    match parse(text) {
        Ok(Some(PlannerConfig::Model(model))) => *model,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_model_needs_a_provider_and_a_name() {
    assert_eq!(parse("offline"), Ok(Some(PlannerConfig::Offline)));
    assert_eq!(parse("{ provider: offline }"), Ok(Some(PlannerConfig::Offline)));
    let written = parse_model(
        "{ provider: anthropic, model: claude, fallback: { provider: ollama, model: llama } }",
    );
    let settings = written.settings_from(&|_| None);
    assert_eq!(settings.name(), "anthropic/claude");
    assert_eq!(settings.fallback.unwrap().name(), "ollama/llama");
}

#[test]
fn a_local_model_needs_no_name_and_has_limits_of_its_own() {
    let local = parse_model("{ provider: local }");
    let settings = local.settings_from(&|_| None);
    assert_eq!((settings.model.as_str(), settings.base_url), ("", None));
    assert_eq!((settings.max_tokens, settings.temperature), (Some(MAX_LOCAL_TOKENS), Some(0.0)));
    assert_eq!(local.max_repairs(), MAX_LOCAL_REPAIRS);
    assert_eq!(local.to_json()["model"], Value::Null);
    let other = parse_model("{ provider: local, model: x, max_repairs: 3, max_tokens: 9 }");
    assert_eq!((other.max_repairs(), other.max_tokens), (3, Some(9)));
}

#[test]
fn a_price_is_known_only_if_configured() {
    let price = |text: &str| parse_model(text).settings_from(&|_| None).price;
    assert_eq!(price("{ provider: openai, model: x }"), None);
    let written = "{ provider: openai, model: x, price: { input: 2.5, output: 10 } }";
    assert_eq!(price(written), Some(Price { input: 2.5, output: 10.0 }));
    assert_eq!(parse_model(written).to_json()["price"], json!({ "input": 2.5, "output": 10.0 }));
}

#[test]
fn a_wrong_model_setting_names_the_correction() {
    for (text, expected) in [
        ("openai", "`planner: openai` is incomplete"),
        ("3", "`planner` is 3; write `planner: offline`"),
        ("{ model: x }", "`planner.provider` is missing"),
        ("{ provider: offline, model: x }", "`planner.model` has no effect on `offline`"),
        ("{ provider: offline, gard: x }", "`planner.gard` is unknown: did you mean `guard`?"),
        ("{ provider: offline, x: x }", "`planner.x` is unknown: `offline` has the keys `cache`"),
        (
            "{ provider: openai, model: x, gard: x }",
            "`planner.gard` is unknown: did you mean `guard`?",
        ),
        ("{ provider: openai }", "`planner.model` is missing"),
        ("{ provider: opnai, model: x }", "did you mean `openai`?"),
        ("{ provider: genai_1, model: x }", "there is no provider `genai_1`"),
        ("{ provider: openai, model: x, modle: y }", "unknown field `modle`"),
        ("{ provider: openai, model: x, base_url: nowhere }", "write `https://host/v1`"),
        ("{ provider: openai, model: x, base_url: 'http://me:pw@h/v1' }", "contains a password"),
        (
            "{ provider: openai, model: x, api_key_env: 'sk-1234567890' }",
            "`sk-…`, which is not the name",
        ),
        ("{ provider: openai, model: x, timeout_ms: 1 }", "write a number from 100 to"),
        ("{ provider: openai, model: x, max_retries: 99 }", "write a number from 0 to 20"),
        ("{ provider: openai, model: x, max_repairs: 11 }", "write a number from 0 to 10"),
        ("{ provider: openai, model: x, temperature: 3 }", "write a number from 0 to 2"),
        ("{ provider: openai, model: x, price: 3 }", "`planner.price`: invalid type"),
        ("{ provider: openai, model: x, price: { input: 3 } }", "missing field `output`"),
        (
            "{ provider: openai, model: x, price: { input: 3, output: -1 } }",
            "`planner.price.output` is -1; write a number from 0 to 1000000000",
        ),
        (
            "{ provider: openai, model: x, fallback: { provider: ollama, model: y, fallback: { provider: groq, model: z } } }",
            "`planner.fallback.fallback`: a fallback cannot have a fallback",
        ),
        (
            "{ provider: openai, model: x, fallback: { provider: ollama } }",
            "`planner.fallback.model` is missing",
        ),
    ] {
        let err = parse(text).unwrap_err();
        assert!(err.contains(expected), "{text}: {err}");
        assert!(!err.contains("1234567890"), "a key is repeated: {err}");
    }
}

#[test]
fn an_api_key_can_be_in_a_file() {
    let written = "{ provider: openai, model: x, api_key_file: k, fallback: { provider: openai, model: y, api_key_file: /l } }";
    let model = parse_model(written);
    let settings = model.settings_from(&|_| Some("of the variable".to_owned()));
    let file = SecretFile::new("k".to_owned(), Path::new("/etc/faber"));
    assert_eq!(settings.key, Key::File(file));
    assert_eq!(model.key_files(), [Path::new("/etc/faber/k"), Path::new("/l")]);
    assert_eq!(model.to_json()["api_key_file"], "k");
    let both = "{ provider: openai, model: x, api_key_file: k, api_key_env: K }";
    let expected = "`planner.api_key_file`: name one of `api_key_env` and `api_key_file`";
    assert_eq!(parse(both).unwrap_err(), expected);
}

#[test]
fn an_api_key_is_read_from_the_variable_of_its_provider() {
    let variable = |name: &str| Some(format!(" value of {name} "));
    let key = |text: &str| parse_model(text).settings_from(&variable).key;
    let key_from = |name: &str| Key::Variable(name.to_owned(), Some(format!("value of {name}")));
    assert_eq!(key("{ provider: openai, model: x }"), key_from("OPENAI_API_KEY"));
    assert_eq!(key("{ provider: ollama, model: x }"), Key::None);
    assert_eq!(key("{ provider: openai, model: x, api_key_env: MY_KEY }"), key_from("MY_KEY"));
    assert_eq!(key("{ provider: openai, model: x, base_url: 'http://h/v1' }"), Key::None);
    assert_eq!(
        key("{ provider: openai, model: x, base_url: 'http://h/v1', api_key_env: MY_KEY }"),
        key_from("MY_KEY")
    );
    let unset =
        parse_model("{ provider: groq, model: x }").settings_from(&|_| Some(" ".to_owned()));
    assert_eq!(unset.key, Key::Variable("GROQ_API_KEY".to_owned(), None));
    assert!(
        !format!("{:?}", parse_model("{ provider: openai, model: x }").settings_from(&variable))
            .contains("value of")
    );
}
