use expect_test::{Expect, expect};
use shared::{id::ToolName, store::Rate};

use super::*;

const SECRET: &str = "a secret that is hard to guess";

fn peer_address() -> IpAddr {
    IpAddr::from([203, 0, 113, 7])
}

fn grant_of(token: Token) -> Grant {
    Access::new([token]).authenticate(Some(SECRET), peer_address()).unwrap()
}

fn parse_tool(name: &str) -> ToolName {
    name.parse().unwrap()
}

fn parse_patterns(patterns: &[&str]) -> Vec<ToolPattern> {
    patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()
}

#[test]
fn a_token_is_required_if_tokens_are_configured() {
    let access = Access::new([
        Token::new("a", "secret one", Role::Viewer),
        Token::new("b", "secret two", Role::Admin),
    ]);
    let name = |token| {
        access.authenticate(token, peer_address()).map(|grant| grant.name().map(str::to_owned))
    };
    assert_eq!(name(Some("secret one")), Ok(Some("a".to_owned())));
    assert_eq!(name(Some("secret two")), Ok(Some("b".to_owned())));
    for wrong in ["secret", "secret one ", "SECRET ONE", "", "a"] {
        assert_eq!(name(Some(wrong)), Err(Denied::UnknownToken), "{wrong}");
    }
    assert_eq!(name(None), Err(Denied::NoToken));
    assert!(access.can_connect(peer_address()));
}

#[test]
fn a_grant_has_the_role_of_its_token_and_without_a_token_all_rights() {
    for role in Role::ALL {
        assert_eq!(grant_of(Token::new("a", SECRET, role)).role(), role);
    }
    assert_eq!(Grant::default().role(), Role::Admin);
}

#[test]
fn without_tokens_only_this_machine_connects() {
    let access = Access::default();
    for (address, expected) in [
        ("127.0.0.1", true),
        ("127.8.9.1", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.168.1.5", false),
        ("::ffff:10.0.0.1", false),
        ("0.0.0.0", false),
        ("fe80::1", false),
    ] {
        assert_eq!(access.can_connect(address.parse().unwrap()), expected, "{address}");
    }
    let local = access.authenticate(None, IpAddr::from([127, 0, 0, 1])).unwrap();
    assert_eq!(local.check_field("Mutation", "registerTool"), Ok(()));
    assert!(local.allows(&parse_tool("ToolSet.activate_toolset")) && local.name().is_none());
}

#[test]
fn debug_output_hides_tokens() {
    let access = Access::new([Token::new("ci", SECRET, Role::Viewer)]);
    let text = format!("{access:?}");
    assert!(text.contains("ci") && !text.contains(SECRET), "{text}");
    let holders = access.read_holders();
    let Some((digest, _)) = holders.grants_by_digest.first() else { panic!("one token") };
    assert_eq!(format!("{digest:?}"), "Digest(***)");
}

#[test]
fn each_role_includes_the_lower_ones() {
    let may = |role, root, field| grant_of(Token::new("ci", SECRET, role)).check_field(root, field);
    for (root, field, minimum) in [
        ("Query", "tools", Role::Viewer),
        ("Query", "parseToolCalls", Role::Operator),
        ("Query", "audit", Role::Admin),
        ("Subscription", "executionEvents", Role::Viewer),
        ("Mutation", "run", Role::Operator),
        ("Mutation", "bulkControl", Role::Admin),
        ("Mutation", "somethingNew", Role::Admin),
    ] {
        for role in Role::ALL {
            assert_eq!(may(role, root, field).is_ok(), role >= minimum, "{role} {field}");
        }
    }
    expect!["`run` needs the role `operator`, and the token `ci` has `viewer`: use another token"]
        .assert_eq(&may(Role::Viewer, "Mutation", "run").unwrap_err().to_string());
}

#[test]
fn an_agent_and_a_replan_have_the_tools_of_their_caller() {
    let definition = |name: &str| shared::tool::ToolDefinition {
        name: parse_tool(name),
        set: name.split_once('.').unwrap().0.parse().unwrap(),
        description: String::new(),
        input_schema: serde_json::json!({}),
        output_schema: None,
        effect: shared::tool::Effect::Read,
        examples: Vec::new(),
        is_callable: true,
    };
    let token = |role, tools: Option<&[&str]>| {
        let token = Token::new("ci", SECRET, role);
        grant_of(Token { tools: tools.map(parse_patterns), ..token })
    };
    let grants = [
        Grant::default(),
        token(Role::Admin, None),
        token(Role::Operator, None),
        token(Role::Operator, Some(&["file_tools.*"])),
        token(Role::Admin, Some(&["ToolSet.*", "blog.create*"])),
    ];
    for grant in &grants {
        for name in [
            "file_tools.glob",
            "blog.createAuthor",
            "blog.getAuthor",
            "system_tools.bash",
            "ToolSet.list_toolset",
            "ToolSet.activate_toolset",
        ] {
            let reaches = grant.agent_reach().includes(&definition(name));
            assert_eq!(reaches, grant.allows(&parse_tool(name)), "{grant:?} {name}");
        }
        assert_eq!(grant.check_reach(&grant.agent_reach()), Ok(()));
        let is_more = !grant.allows_every_tool();
        assert_eq!(grant.check_reach(&grants[0].agent_reach()).is_err(), is_more, "{grant:?}");
    }
}

#[test]
fn only_tools_that_match_the_patterns_are_allowed() {
    let token = Token::new("ci", SECRET, Role::Operator);
    let mut named = token.clone();
    named.tools = Some(parse_patterns(&["file_tools.*", "blog.createAuthor"]));
    let named = grant_of(named);
    let (glob, author, bash) = (
        parse_tool("file_tools.glob"),
        parse_tool("blog.createAuthor"),
        parse_tool("system_tools.bash"),
    );
    assert_eq!(named.check_tools([&glob, &author]), Ok(()));
    let err = named.check_tools([&glob, &bash]).unwrap_err();
    expect![[
        r"the token `ci` may not use the tool `system_tools.bash`: use another token, or add the tool to its `tools`"
    ]]
    .assert_eq(&err.to_string());
    assert_eq!(err.code(), "FORBIDDEN");
    let every = grant_of(token.clone());
    assert!(every.allows(&bash) && !every.allows(&parse_tool("ToolSet.activate_toolset")));
    assert!(every.allows(&parse_tool("ToolSet.list_toolset")));
    for (patterns, expected) in [(&["*"], false), (&["ToolSet.*"], true)] {
        let mut token = token.clone();
        token.tools = Some(parse_patterns(patterns));
        assert_eq!(grant_of(token).allows(&parse_tool("ToolSet.activate_toolset")), expected);
    }
    let mut none = token;
    none.tools = Some(Vec::new());
    assert!(!grant_of(none).allows(&glob), "an empty list allows no tool");
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
fn check_limit(result: Result<(), AccessError>, expected: Expect) {
    expected.assert_eq(&result.unwrap_err().to_string());
}

#[test]
fn limits_count_all_calls_and_calls_of_each_tool() {
    let mut token = Token::new("ci", SECRET, Role::Operator);
    let hourly = |calls| Some(Rate { calls, per_ms: 3_600_000 });
    token.limits = Limits { calls: hourly(3), per_tool: hourly(1) };
    let access = Access::new([token]);
    let grant = access.authenticate(Some(SECRET), peer_address()).unwrap();
    let (a, b, c) = (parse_tool("s.a"), parse_tool("s.b"), parse_tool("s.c"));
    assert_eq!(grant.count_uses([&a, &b, &a]), Ok(()), "a plan counts as one start");
    check_limit(
        grant.count_uses([&c, &a]),
        expect!["the token `ci` has used up its limit `per_tool` of `s.a`; try again in 3600 s"],
    );
    assert_eq!(grant.count_uses([&c]), Ok(()), "a refused call does not count");
    // A second connection with the same token shares the limits of this token.
    let second_grant = access.authenticate(Some(SECRET), peer_address()).unwrap();
    assert_eq!(second_grant.count_uses([]), Ok(()));
    let err = second_grant.count_uses([]).unwrap_err();
    assert_eq!(err.code(), "LIMIT_EXCEEDED");
    assert!(access.format_metrics().contains("faber_alerts_total{kind=\"limit\"} 2"));
}

#[test]
fn alerts_are_counted_in_metrics() {
    let access = Access::new([Token::new("ci", SECRET, Role::Viewer)]);
    for _ in 0..6 {
        assert!(access.authenticate(Some("wrong"), peer_address()).is_err());
    }
    expect![[r#"
        # HELP faber_alerts_total Suspicious behaviour of callers, by kind.
        # TYPE faber_alerts_total counter
        faber_alerts_total{kind="bad_tokens"} 2
        faber_alerts_total{kind="forbidden_tool"} 0
        faber_alerts_total{kind="limit"} 0
    "#]]
    .assert_eq(&access.format_metrics());
}
