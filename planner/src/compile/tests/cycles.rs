use super::*;

fn find_cycles(steps: &[(&str, &[&str])]) -> Vec<String> {
    let prefix = "Circular dependency detected between tools: ";
    let found = compile_invalid(draft_of_steps(steps)).into_iter().map(|diagnostic| {
        assert_eq!(diagnostic.code, "plan.cycle");
        diagnostic.message.strip_prefix(prefix).expect("the contract's words").to_owned()
    });
    found.collect()
}

#[test]
fn a_cycle_starts_from_its_first_written_step() {
    assert_eq!(find_cycles(&[("a", &["b"]), ("b", &["a"])]), ["a -> b -> a"]);
    assert_eq!(
        find_cycles(&[("x", &[]), ("b", &["c", "x"]), ("a", &["b"]), ("c", &["a"])]),
        ["b -> c -> a -> b"]
    );
    assert_eq!(find_cycles(&[("a", &["a"])]), ["a -> a"]);
}

#[test]
fn each_component_is_named_once_with_a_shortest_cycle() {
    let found = find_cycles(&[
        ("on", &["p"]),
        ("a", &["b", "x"]),
        ("b", &["c"]),
        ("c", &["a", "b"]),
        ("x", &["c", "a"]),
        ("p", &["q"]),
        ("q", &["p"]),
        ("s", &["s", "q"]),
    ]);
    assert_eq!(found, ["a -> x -> a", "p -> q -> p", "s -> s"]);
}

#[test]
fn templates_and_variables_make_cycles() {
    let found = compile_invalid(json!({ "tools": [
        { "id": "a", "name": "flow.echo", "parameters": { "x": ["{{b.y}}"] } },
        { "id": "b", "name": "flow.echo", "parameters": { "y": "{{vars.v}}" } },
        { "id": "c", "name": "flow.echo", "dependsOn": "a", "outputMapping": { "y": "v" } },
        { "id": "me", "name": "flow.echo", "parameters": { "x": "{{me.x}}" } },
    ] }));
    let found: Vec<_> = found
        .into_iter()
        .map(|diagnostic| (diagnostic.path, diagnostic.message, diagnostic.help))
        .collect();
    let message = |cycle: &str| format!("Circular dependency detected between tools: {cycle}");
    let expected = [
        (
            "tools[0].parameters.x[0]".to_owned(),
            message("a -> b -> c -> a"),
            Some(
                "for example, take `{{b.y}}`, which reads `b`, out of `tools[0].parameters.x[0]`"
                    .to_owned(),
            ),
        ),
        (
            "tools[3].parameters.x".to_owned(),
            message("me -> me"),
            Some(
                "for example, take `{{me.x}}`, which reads `me`, out of `tools[3].parameters.x`"
                    .to_owned(),
            ),
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_long_cycle_is_cut_in_the_middle() {
    let steps = 60_000;
    let draft: Vec<Value> = (0..steps)
        .map(|n| json!({ "id": format!("s{n}"), "name": "flow.noop", "dependsOn": format!("s{}", (n + 1) % steps) }))
        .collect();
    let found = compile_invalid(json!({ "tools": draft }));
    assert_eq!(found.len(), 1);
    let message = &found[0].message;
    assert!(message.contains(": s0 -> s1 -> "), "{message}");
    assert!(message.contains(" -> s24 -> … 59950 more … -> s59975 -> "), "{message}");
    assert!(message.ends_with(" -> s59999 -> s0"), "{message}");
}
