use serde_json::json;
use shared::tool::{Effect, ToolError};

use super::*;
use crate::tool::{ToolContext, function};

fn tool(set: &'static str, name: &'static str) -> Arc<dyn Tool> {
    let run = |_: Value, _: ToolContext| async { Ok::<_, ToolError>(json!(null)) };
    function(set, name, "d", Effect::Read, run)
}

fn set(name: &'static str, status: SetStatus, tools: &[&'static str]) -> ToolSet {
    let tools = tools.iter().map(|it| tool(name, it));
    ToolSet { status, ..ToolSet::ready(name.parse().unwrap(), "local", "d", tools) }
}

fn name(text: &str) -> ToolSetName {
    text.parse().unwrap()
}

fn status(toolbox: &Toolbox, text: &str) -> SetStatus {
    toolbox.set(&name(text)).unwrap().status
}

#[test]
fn a_set_that_is_connecting_may_change_what_a_plain_name_means() {
    let toolbox = Toolbox::new([
        set("early", SetStatus::Connecting, &[]),
        set("mid", SetStatus::Ready, &["t", "s.u"]),
        set("late", SetStatus::Ready, &[]),
    ]);
    let may_change = |name: &str| toolbox.may_change(&name.parse().unwrap());
    for (name, expected) in [
        ("t", true),
        ("u", true),
        ("mid.u", true),
        ("nope", true),
        ("early.t", true),
        ("mid.t", false),
        ("mid.nope", false),
        ("mid.s.u", false),
    ] {
        assert_eq!(may_change(name), expected, "{name}");
    }
    toolbox.settle(&name("early"), SetStatus::Ready, Vec::new());
    toolbox.settle(&name("late"), SetStatus::Connecting, Vec::new());
    assert_eq!(["t", "u", "mid.t"].map(may_change), [false, true, false]);
}

#[test]
fn only_a_set_that_has_failed_is_asked_again() {
    let failed = || SetStatus::Failed { error: "e".to_owned() };
    let sets = [("a", failed()), ("b", SetStatus::Ready), ("c", failed())];
    let toolbox = Toolbox::new(sets.map(|(name, status)| set(name, status, &["t"])));
    assert!(!toolbox.wake(&name("a")), "nobody is there to ask");
    toolbox.on_wanted(|set| set.as_str() != "c");
    let woken = ["a", "b", "c", "d"].map(|it| toolbox.wake(&name(it)));
    assert_eq!(woken, [true, false, false, false]);
    let statuses = ["a", "b", "c"].map(|it| status(&toolbox, it));
    assert_eq!(statuses, [SetStatus::Connecting, SetStatus::Ready, failed()]);
    let Found::Tool(_) = toolbox.find(&"a.t".parse().unwrap()) else { panic!("its tools stay") };
}

#[test]
fn who_was_stopped_says_nothing_about_the_set_that_has_the_name_now() {
    let toolbox = Toolbox::new([set("a", SetStatus::Connecting, &[])]);
    let stop = CancellationToken::new();
    let tools = || vec![ReadyTool::new(tool("a", "old"))];
    toolbox.settle_unless(&stop, &name("a"), SetStatus::Ready, tools());
    assert_eq!(status(&toolbox, "a"), SetStatus::Ready);
    stop.cancel();
    toolbox.put(set("a", SetStatus::Connecting, &[]));
    toolbox.settle_unless(&stop, &name("a"), SetStatus::Ready, tools());
    assert_eq!(status(&toolbox, "a"), SetStatus::Connecting);
}
