use expect_test::{Expect, expect};

use super::*;

fn check(tools: &Value, expected: &Expect) {
    let found = compile_json(json!({ "tools": tools }));
    expected.assert_eq(&format_diagnostics(
        &found.map_or_else(|diagnostics| diagnostics, |plan| plan.diagnostics().to_vec()),
    ));
}

#[test]
fn policy_values_in_range_are_kept() {
    let plan = compile_valid(json!({ "tools": [
        { "name": "listAuthors", "idleTimeoutMs": 1, "cacheTtlMs": 31_536_000_000_u64 },
        { "name": "flow.echo", "forEach": "{{listAuthors}}", "maxParallel": 10_000 },
    ] }));
    let (list, echo) = (&plan.steps()[0].policy, &plan.steps()[1].policy);
    assert_eq!((list.idle_timeout_ms, list.cache_ttl_ms), (Some(1), Some(31_536_000_000)));
    assert_eq!((echo.max_parallel, echo.max_parallel()), (Some(10_000), 10_000));
    assert_eq!((echo.idle_timeout_ms, echo.cache_ttl_ms), (None, None));
}

#[test]
fn policy_values_out_of_range_are_reported() {
    check(
        &json!([
            { "name": "listAuthors", "idleTimeoutMs": 0, "cacheTtlMs": 0 },
            { "name": "listAuthors", "idleTimeoutMs": 31_536_000_001_u64, "cacheTtlMs": 31_536_000_001_u64 },
            { "name": "flow.echo", "forEach": "{{listAuthors}}", "maxParallel": 0 },
            { "name": "flow.echo", "forEach": "{{input}}", "maxParallel": 10_001 },
            { "name": "flow.echo", "maxParallel": 2 },
            { "name": "createBlog", "cacheTtlMs": 1_000 },
            { "name": "nobody", "cacheTtlMs": 1_000 },
        ]),
        &expect![[r#"
            error[plan.invalid_timeout] tools[0].idleTimeoutMs: `0` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_cache] tools[0].cacheTtlMs: `0` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_timeout] tools[1].idleTimeoutMs: `31536000001` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_cache] tools[1].cacheTtlMs: `31536000001` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_max_parallel] tools[2].maxParallel: `0` is out of range (choose a number from 1 to 10000)
            error[plan.invalid_max_parallel] tools[3].maxParallel: `10001` is out of range (choose a number from 1 to 10000)
            warning[plan.max_parallel_unused] tools[4].maxParallel: `maxParallel` limits the items of a `forEach`, which this step does not have (remove it; the execution has an option `maxParallel` for its steps)
            error[plan.invalid_cache] tools[5].cacheTtlMs: `demo.createBlog` has the effect ONCE, which would not happen with a cached output (remove `cacheTtlMs`; only tools with the effect READ can be cached)
            error[plan.unknown_tool] tools[6].name: no tool is called `nobody` (`faber tools list` lists the tools)
        "#]],
    );
}

#[test]
fn cache_ttl_is_allowed_for_read_tools_only() {
    let of = |name: &str, effect| {
        let set = if name.starts_with("flow.") { "flow" } else { "s" };
        let catalog = Catalog::new([with_change(&make_tool(set, name, json!({})), |tool| {
            tool.effect = effect;
        })]);
        let draft = json!({ "tools": [{ "name": name, "cacheTtlMs": 5 }] });
        compile(&parse_value(draft).unwrap(), plan_info(), &catalog)
            .map_err(|diagnostics| format_diagnostics(&diagnostics))
    };
    assert!(of("t", Effect::Read).is_ok());
    for (name, effect, expected) in [
        ("t", Effect::Once, "has the effect ONCE"),
        ("t", Effect::Idempotent, "has the effect IDEMPOTENT"),
        ("flow.wait", Effect::Read, "only waits"),
        ("flow.sleep", Effect::Read, "only waits"),
    ] {
        let found = of(name, effect).unwrap_err();
        assert!(found.starts_with("error[plan.invalid_cache] tools[0].cacheTtlMs"), "{found}");
        assert!(found.contains(expected), "{found}");
    }
}
