use serde_json::json;

use super::*;

/// Names and values: four steps, the input, and the item and index of a loop. The index of a step
/// is its number.
struct TestSteps(Vec<(&'static str, Value)>);

impl ResolveNames for TestSteps {
    fn find_step(&self, name: &str) -> Option<StepNumber> {
        self.0[..4].iter().position(|(id, _)| *id == name).map(StepNumber::new)
    }

    fn find_tool_step(&self, name: &str) -> Option<StepNumber> {
        (name == "blog.listAuthors" || name == "flow.other").then(|| StepNumber::new(1))
    }
}

impl LookUpValues for TestSteps {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(step) => self.0.get(step.get()).map(|(_, output)| output),
            Target::Variable(name) => (&**name == "who").then_some(&self.0[0].1["name"]),
            Target::Input => Some(&self.0[4].1),
            Target::Item => Some(&self.0[5].1),
            Target::Index => Some(&self.0[6].1),
        }
    }
}

fn test_steps() -> TestSteps {
    let author = json!({
        "_id": "507f", "name": "Alice", "email": "alice@test.com", "age": 0, "active": false,
        "bio": "", "address": { "city": "Rome" }, "tags": ["a", "b"], "nul": null,
        "any key": 1, "x}}y": 2, "big": 9_007_199_254_740_993_u64, "a\"b": 3,
        "trap": "{{createAuthor.name}}",
    });
    TestSteps(vec![
        ("createAuthor", author),
        ("list", json!([{ "_id": "x1" }, { "_id": "x2" }])),
        ("flow.echo", json!({ "v": 1 })),
        ("flow", json!({ "echo": { "v": "wrong" }, "other": 5 })),
        // The input, and the item and index of a loop. No step has these names.
        ("input", json!({ "days": 7, "deep": { "list": [true] } })),
        ("item", json!({ "name": "Bob", "tags": ["x"] })),
        ("index", json!(3)),
    ])
}

fn render(value: &Value) -> Value {
    let test_steps = test_steps();
    let template = Template::parse(value, &test_steps).expect("a good template");
    let rendered = template.render(&test_steps, 1 << 20).unwrap();
    assert_eq!(rendered.unresolved, Vec::<Arc<str>>::new());
    rendered.value
}

#[test]
fn a_whole_reference_keeps_its_type() {
    for (template, expected) in [
        ("{{createAuthor._id}}", json!("507f")),
        ("{{createAuthor.address}}", json!({ "city": "Rome" })),
        ("{{createAuthor.address.city}}", json!("Rome")),
        ("{{createAuthor.tags.1}}", json!("b")),
        ("{{createAuthor.tags[1]}}", json!("b")),
        ("{{list.0._id}}", json!("x1")),
        ("{{list[1]._id}}", json!("x2")),
        ("{{createAuthor.age}}", json!(0)),
        ("{{createAuthor.active}}", json!(false)),
        ("{{createAuthor.bio}}", json!("")),
        ("{{createAuthor.nul}}", json!(null)),
        ("{{ createAuthor . _id }}", json!("507f")),
        ("{{createAuthor[\"any key\"]}}", json!(1)),
        ("{{createAuthor['any key']}}", json!(1)),
        ("{{createAuthor[ \"x}}y\" ]}}", json!(2)),
        ("{{createAuthor[\"a\\\"b\"]}}", json!(3)),
        ("{{createAuthor.big}}", json!(9_007_199_254_740_993_u64)),
        ("{{flow.echo.v}}", json!(1)),
        ("{{flow.echo}}", json!({ "v": 1 })),
        ("{{flow.other}}", json!(5)),
        ("{{blog.listAuthors[1]._id}}", json!("x2")),
        ("{{vars.who}}", json!("Alice")),
        ("{{input}}", json!({ "days": 7, "deep": { "list": [true] } })),
        ("{{input.days}}", json!(7)),
        ("{{ input.deep.list[0] }}", json!(true)),
        ("{{item}}", json!({ "name": "Bob", "tags": ["x"] })),
        ("{{item.tags.0}}", json!("x")),
        ("{{index}}", json!(3)),
        ("{{createAuthor.trap}}", json!("{{createAuthor.name}}")),
    ] {
        assert_eq!(render(&json!(template)), expected, "{template}");
    }
    let test_steps = test_steps();
    assert_eq!(render(&json!("{{createAuthor}}")), test_steps.0[0].1);
}

#[test]
fn a_value_inside_text_is_converted_to_text() {
    for (template, expected) in [
        (
            "Created by {{createAuthor.name}} ({{createAuthor.email}})",
            "Created by Alice (alice@test.com)",
        ),
        ("{{createAuthor.name}}{{createAuthor.email}}", "Alicealice@test.com"),
        (" {{createAuthor.name}}", " Alice"),
        ("n={{createAuthor.age}}, {{createAuthor.nul}}", "n=0, null"),
        ("{{index}}: {{item.name}} for {{input.days}} days", "3: Bob for 7 days"),
        ("{{createAuthor.tags}}!", "[\"a\",\"b\"]!"),
        ("{{{{createAuthor.name}} {{createAuthor.name}}", "{{createAuthor.name}} Alice"),
        ("{{{{", "{{"),
        ("open {{createAuthor.name", "open {{createAuthor.name"),
        ("a } b }} c { d", "a } b }} c { d"),
    ] {
        assert_eq!(render(&json!(template)), json!(expected), "{template}");
    }
}

#[test]
fn templates_work_at_any_depth_and_never_in_keys() {
    let value = json!({ "{{list}}": [1, { "deep": ["{{list.0._id}}", "x"] }], "n": 1.5 });
    let expected = json!({ "{{list}}": [1, { "deep": ["x1", "x"] }], "n": 1.5 });
    assert_eq!(render(&value), expected);
    let escaped = json!({ "a": ["{{{{x}} y"], "b": { "c": "{{{{" } });
    assert_eq!(render(&escaped), json!({ "a": ["{{x}} y"], "b": { "c": "{{" } }));
}

#[test]
fn references_without_a_value_stay_as_written() {
    let test_steps = test_steps();
    for template in [
        "{{createAuthor.missing}}",
        "{{createAuthor.missing.deep}}",
        "{{ createAuthor.nul.deep }}",
        "{{list.7}}",
        "{{list[\"0\"]}}",
        "{{vars.nobody}}",
        "{{input.nobody}}",
        "{{item.nobody}}",
        "{{index.nobody}}",
    ] {
        let parsed = Template::parse(&json!(template), &test_steps).unwrap();
        let rendered = parsed.render(&test_steps, 1 << 20).unwrap();
        assert_eq!(rendered.value, json!(template));
        assert_eq!(rendered.unresolved, [Arc::from(template)]);
    }
}

#[test]
fn braces_around_an_invalid_reference_are_rejected() {
    let test_steps = test_steps();
    for (template, is_unknown) in [
        ("{{}}", false),
        ("{{ }}", false),
        ("{{a + b}}", false),
        ("{{createAuthor.}}", false),
        ("{{createAuthor..x}}", false),
        ("{{createAuthor[x]}}", false),
        ("{{createAuthor[0}}", false),
        ("{{createAuthor|upper}}", false),
        ("{{\"a\": 1}}", false),
        ("{{nobody._id}}", true),
        ("{{nobody}}", true),
        ("{{vars}}", true),
    ] {
        let value = json!({ "a": [{ "b c": template }] });
        let errors = Template::parse(&value, &test_steps).expect_err(template);
        assert_eq!(errors.len(), 1, "{template}");
        assert_eq!(errors[0].at, ".a[0][\"b c\"]");
        let unknown = matches!(errors[0].kind, TemplateErrorKind::Unknown { .. });
        assert_eq!(unknown, is_unknown, "{template}: {}", errors[0]);
    }
}

#[test]
fn inserted_values_are_limited() {
    let test_steps = test_steps();
    let template =
        Template::parse(&json!(["{{createAuthor.name}}", "{{createAuthor.name}}"]), &test_steps);
    let template = template.unwrap();
    assert!(template.render(&test_steps, 14).is_ok());
    assert_eq!(template.render(&test_steps, 13), Err(RenderedTooLarge));
}
