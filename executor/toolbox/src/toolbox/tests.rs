use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::tool::{Effect, ToolError};
use tokio::time;

use super::*;
use crate::tool::{ToolContext, function};

fn tool(set: &'static str, name: &'static str) -> Arc<dyn Tool> {
    let run = |_: Value, _: ToolContext| async { Ok::<_, ToolError>(json!(null)) };
    function(set, name, "d", Effect::Read, run)
}

fn set(name: &'static str, status: SetStatus, tools: &[&'static str]) -> ToolSet {
    let tools = tools.iter().map(|plain| tool(name, plain));
    ToolSet { status, ..ToolSet::ready(name.parse().unwrap(), "local", "d", tools) }
}

fn name(text: &str) -> ToolSetName {
    text.parse().unwrap()
}

fn status(toolbox: &Toolbox, text: &str) -> SetStatus {
    toolbox.set(&name(text)).unwrap().status
}

#[test]
fn a_connecting_set_may_change_the_meaning_of_a_plain_name() {
    let toolbox = Toolbox::new([
        set("early", SetStatus::Connecting, &[]),
        set("mid", SetStatus::Ready, &["t", "s.u"]),
        set("late", SetStatus::Ready, &[]),
    ]);
    let may_change = |name: &str| toolbox.may_change(&name.parse().unwrap());
    for (name, expected) in [
        ("t", true),
        ("u", true),
        // Names with a set's prefix belong to that set.
        ("mid.u", false),
        ("nope", true),
        ("early.t", true),
        ("mid.t", false),
        ("mid.nope", false),
        ("mid.s.u", false),
    ] {
        assert_eq!(may_change(name), expected, "{name}");
    }
    toolbox.update_set(&name("early"), SetStatus::Ready, Vec::new());
    toolbox.update_set(&name("late"), SetStatus::Connecting, Vec::new());
    assert_eq!(["t", "u", "mid.t"].map(may_change), [false, true, false]);
}

#[test]
fn only_a_failed_set_is_connected_again() {
    let failed = || SetStatus::Failed { error: "e".to_owned() };
    let sets = [("a", failed()), ("b", SetStatus::Ready), ("c", failed())];
    let toolbox = Toolbox::new(sets.map(|(name, status)| set(name, status, &["t"])));
    assert!(!toolbox.reconnect_set(&name("a")), "no source is registered for the set");
    toolbox.set_reconnect(|set| set.as_str() != "c");
    let reconnected = ["a", "b", "c", "d"].map(|set| toolbox.reconnect_set(&name(set)));
    assert_eq!(reconnected, [true, false, false, false]);
    let statuses = ["a", "b", "c"].map(|set| status(&toolbox, set));
    assert_eq!(statuses, [SetStatus::Connecting, SetStatus::Ready, failed()]);
    let ToolLookup::Tool(_) = toolbox.find(&"a.t".parse().unwrap()) else {
        panic!("its tools stay")
    };
}

#[test]
fn a_qualified_name_of_a_missing_tool_means_no_other_tool() {
    let failed = || SetStatus::Failed { error: "e".to_owned() };
    let planned: ToolName = "m.b".parse().unwrap();
    for (status, is_connecting) in [(SetStatus::Connecting, true), (failed(), false)] {
        let toolbox =
            Toolbox::new([set("m2", SetStatus::Ready, &["m.b", "x.m.b"]), set("m", status, &[])]);
        for found in [toolbox.find_planned(&planned), toolbox.find(&planned)] {
            let is_right = match found {
                ToolLookup::Connecting => is_connecting,
                ToolLookup::Failed { set, .. } => !is_connecting && set.as_str() == "m",
                _ => false,
            };
            assert!(is_right, "{is_connecting}");
        }
        assert!(!toolbox.has_all([&planned]));
        assert_eq!(toolbox.may_change(&planned), is_connecting);
        toolbox.put_set(set("m", SetStatus::Ready, &["b"]));
        let ToolLookup::Tool(found) = toolbox.find_planned(&planned) else {
            panic!("the toolbox has the tool")
        };
        assert_eq!(found.definition().set.as_str(), "m");
        assert!(toolbox.has_all([&planned]));
        // After the set `m` was removed, a user can mean the tool of `m2` by the name `m.b`, but a
        // plan cannot.
        toolbox.remove_set(&name("m"));
        assert!(matches!(toolbox.find_planned(&planned), ToolLookup::Unknown));
        assert!(!toolbox.has_all([&planned]));
        let ToolLookup::Tool(found) = toolbox.find(&planned) else { panic!("its own name") };
        assert_eq!(found.definition().set.as_str(), "m2");
    }
}

#[tokio::test(start_paused = true)]
async fn only_calls_that_need_a_failed_set_wait_for_it() {
    let failed = SetStatus::Failed { error: "e".to_owned() };
    let sets = [("a", failed), ("b", SetStatus::Ready)];
    let toolbox = Toolbox::new(sets.map(|(name, status)| set(name, status, &["t"])));
    toolbox.set_reconnect(|_| true);
    toolbox.update_set(&name("a"), SetStatus::Failed { error: "e".to_owned() }, Vec::new());
    toolbox.reconnect_all();
    assert_eq!(status(&toolbox, "a"), SetStatus::Connecting);
    let started_at = time::Instant::now();
    let max_wait = Duration::from_secs(30);
    toolbox.wait_for_sets(max_wait).await;
    toolbox.wait_for_names(&["t".parse().unwrap(), "b.t".parse().unwrap()], max_wait).await;
    assert_eq!(started_at.elapsed(), Duration::ZERO);
    toolbox.wait_for_names(&["a.t".parse().unwrap()], max_wait).await;
    assert_eq!(started_at.elapsed(), max_wait, "the name may appear until then");
    // A new set of the same name connects for the first time.
    toolbox.put_set(set("a", SetStatus::Connecting, &[]));
    toolbox.wait_for_sets(max_wait).await;
    assert_eq!(started_at.elapsed(), 2 * max_wait);
}

#[test]
fn a_stopped_source_does_not_change_a_new_set_of_its_name() {
    let toolbox = Toolbox::new([set("a", SetStatus::Connecting, &[])]);
    let stop = CancellationToken::new();
    let tools = || vec![ReadyTool::new(tool("a", "old"))];
    toolbox.update_set_unless(&stop, &name("a"), SourceTools::ready(tools()));
    assert_eq!(status(&toolbox, "a"), SetStatus::Ready);
    stop.cancel();
    toolbox.put_set(set("a", SetStatus::Connecting, &[]));
    toolbox.update_set_unless(&stop, &name("a"), SourceTools::ready(tools()));
    assert_eq!(status(&toolbox, "a"), SetStatus::Connecting);
}

#[test]
fn a_tool_with_an_invalid_or_reserved_name_is_skipped() {
    let bad = ["../x", "a b", "activate_toolset", "file_tools.glob"];
    let toolbox = Toolbox::new([set("m", SetStatus::Connecting, &[])]);
    let tools = |names: &[&'static str]| {
        names.iter().map(|plain| ReadyTool::new(tool("m", plain))).collect::<Vec<_>>()
    };
    let all = [&["good"][..], &bad].concat();
    toolbox.update_set(&name("m"), SetStatus::Ready, tools(&all));
    let check = |toolbox: &Toolbox| {
        let set = toolbox.set_with_tools(&name("m")).unwrap();
        assert_eq!((set.tools.len(), set.left_out.len()), (1, bad.len()), "{:?}", set.left_out);
        for (reason, bad) in set.left_out.iter().zip(bad) {
            assert!(reason.contains(&format!("`{bad}`")), "{reason}");
            let found = toolbox.find(&bad.parse().unwrap());
            assert!(matches!(found, ToolLookup::Unknown), "{bad}: {found:?}");
        }
    };
    check(&toolbox);
    check(&Toolbox::new([set("m", SetStatus::Ready, &all)]));
    toolbox.put_set(set("m", SetStatus::Ready, &all));
    check(&toolbox);
    toolbox.update_set(&name("m"), SetStatus::Ready, tools(&bad[..1]));
    let SetStatus::Failed { error } = status(&toolbox, "m") else { panic!("no tool is left") };
    assert!(error.contains("`../x` cannot name a tool"), "{error}");
    toolbox.update_set(&name("m"), SetStatus::Ready, tools(&["good"]));
    assert!(
        toolbox.set_with_tools(&name("m")).unwrap().left_out.is_empty(),
        "the new list has no reason to leave tools out"
    );
}

/// A tool whose schema has a pattern that is too large.
#[derive(Debug)]
struct Patterned(Arc<ToolDefinition>);

#[async_trait]
impl Tool for Patterned {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.0
    }

    async fn call(&self, _: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}

#[test]
fn a_pattern_that_is_not_enforced_is_logged_once() {
    const LARGE: &str = r"^(\w{1000}){1000}$";
    let mut definition = ToolDefinition::clone(tool("m", "t").definition());
    definition.input_schema = json!({ "properties": { "a": { "pattern": LARGE } } });
    let tool = Patterned(Arc::new(definition));
    let set = ToolSet::ready(name("m"), "local", "d", [Arc::new(tool) as Arc<dyn Tool>]);
    let toolbox = Toolbox::new([set]);
    let ToolLookup::Tool(found) = toolbox.find(&"m.t".parse().unwrap()) else {
        panic!("the toolbox has the tool")
    };
    let others = ["^other$".to_owned()];
    assert_eq!(found.unlogged_patterns([&[LARGE.to_owned()], &others[..]].concat()), others);
}

#[tokio::test]
async fn an_idle_set_starts_when_its_tools_are_needed() {
    let sets = ["a", "b", "c"].map(|name| set(name, SetStatus::Idle, &[]));
    let toolbox = Toolbox::new(sets);
    let started: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let (log, weak) = (Arc::clone(&started), toolbox.downgrade());
    toolbox.set_start(move |name| {
        log.lock().unwrap().push(name.to_string());
        let ready = ReadyTool::new(tool("b", "t"));
        weak.upgrade().unwrap().update_set(name, SetStatus::Ready, vec![ready]);
    });
    let ten_minutes = Duration::from_mins(10);
    let tools = |text: &str| [text.parse::<ToolName>().unwrap()];
    assert!(matches!(toolbox.find(&tools("b.t")[0]), ToolLookup::Connecting));
    assert!(started.lock().unwrap().is_empty(), "a look-up alone starts nothing");
    assert!(!toolbox.has_all(&tools("b.t")) && toolbox.has_all(&tools("b.t")));
    toolbox.wait_for_names(&tools("b.t"), ten_minutes).await;
    assert_eq!(*started.lock().unwrap(), ["b"]);
    toolbox.switch_sets(&[(name("c"), false)].into());
    toolbox.wait_for_started_sets(ten_minutes, |set| set.is_active).await;
    assert_eq!(*started.lock().unwrap(), ["b", "a"]);
    // A name without a toolset can belong to each set.
    toolbox.wait_for_names(&tools("plain"), ten_minutes).await;
    assert_eq!(*started.lock().unwrap(), ["b", "a", "c"]);
}
