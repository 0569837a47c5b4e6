//! What holds for every query and every toolset.

use proptest::prelude::*;

use super::{blog::blog, *};
use crate::Offline;
use planner::Planner as _;

#[test]
fn a_query_that_is_too_long_is_refused() {
    let query = "list all authors ".repeat(shared::limits::QUERY_BYTES / 16);
    let said = outcome(&blog(), &query);
    assert!(said.starts_with("no plan: the query has ") && said.contains("is the most"), "{said}");
}

#[test]
fn too_many_clauses_are_refused() {
    let said = outcome(&blog(), &"list all authors; ".repeat(super::super::clause::CLAUSES + 1));
    assert!(said.starts_with("no plan: the query has 257 clauses"), "{said}");
}

#[test]
fn without_tools_there_is_no_plan() {
    assert!(
        outcome(&Catalog::default(), "list all authors").starts_with("no plan: there are no tools")
    );
}

#[test]
fn inactive_tools_are_not_chosen() {
    let tools =
        blog().tools().to_vec().into_iter().map(|it| CatalogTool { is_active: false, ..it });
    assert!(
        outcome(&Catalog::new(tools), "list all authors")
            .starts_with("no plan: there are no tools")
    );
}

#[test]
fn a_refusal_names_what_is_switched_off_and_the_query_once() {
    let off = tool("archive_blog", "Archive a blog", json!({ "blog!": { "type": "string" } }));
    let off = CatalogTool { definition: Arc::new(off), is_active: false };
    let tools = Catalog::new(blog().tools().iter().cloned().chain([off]));
    let said = outcome(&tools, "Archive the blog Salt");
    assert!(said.contains("plan.inactive_tool: `demo.archive_blog` may do that"), "{said}");
    assert!(said.contains("`faber toolsets activate demo`"), "{said}");
    let query = "Update author Ann Bob with nothing named so";
    let said = outcome(&tools, query);
    assert!(said.starts_with("no plan") && said.matches(query).count() < 2, "{said}");
    assert!(!said.contains("plan.inactive_tool"), "{said}");
}

#[tokio::test]
async fn the_planner_notes_how_it_decided() {
    let query = "Create author Charlie, then create blog by Charlie";
    let proposal = Offline::default().propose(query, &blog()).await.unwrap();
    assert_eq!(Offline::default().name(), "offline");
    assert_eq!(proposal.draft.query.as_deref(), Some(query));
    let kinds: Vec<&str> = proposal.notes.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, ["clauses", "candidates", "assumptions"]);
    let candidates = &proposal.notes[1].content;
    assert_eq!(candidates[0]["tools"][0]["tool"], "createAuthor");
    assert_eq!(proposal.warnings.len(), 3);
    assert!(
        proposal.warnings.iter().all(|it| it.code == "plan.assumed_parameter" && it.help.is_some())
    );
}

#[test]
fn five_hundred_tools_are_told_apart() {
    let mut tools: Vec<ToolDefinition> =
        blog().tools().iter().map(|it| (*it.definition).clone()).collect();
    for at in 0..500 {
        tools.push(tool(
            &format!("createThing{at}x"),
            "Create a thing of some kind.",
            json!({ "name!": { "type": "string" } }),
        ));
    }
    let said = outcome(
        &catalog(tools),
        "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world",
    );
    assert!(said.starts_with("createAuthor {"), "{said}");
}

#[test]
fn more_things_than_people_list_are_refused_at_once() {
    for count in [300, 4_000] {
        let said = outcome(&blog(), &format!("create authors {}", "Alice and ".repeat(count)));
        assert!(said.contains("makes the plan too long: split the query"), "{said}");
    }
}

#[test]
fn more_words_than_people_say_are_refused_at_once() {
    let said = outcome(&blog(), &"a ".repeat(20_000));
    assert!(
        said.starts_with("no plan: the query has 20000 words and marks, but 10000 is the most"),
        "{said}"
    );
}

#[test]
fn words_that_are_said_again_and_again_take_no_longer() {
    // What is quadratic in any of these takes minutes.
    for word in ["so ", ", ", "without ", "if ", "please ", "not ", "and delete ", "plus ", "1,2a"]
    {
        for begin in ["", "Maybe ", "Frobnicate saying "] {
            let query = format!("{begin}{}", word.repeat(9_000));
            let said = outcome(&blog(), query.trim());
            assert!(said.starts_with("no plan"), "{begin}{word}: {said}");
        }
    }
}

#[test]
fn long_texts_are_checked_in_steps_that_they_can_afford() {
    let query = "Create a blog for author 507f1f77bcf86cd799439011 titled X with content: ";
    for (text, count) in
        [("a ", 9_000), ("word ", 6_000), ("b a ", 4_000), ("(x) ", 2_000), ("please ", 5_000)]
    {
        let query = format!("{query}{}", text.repeat(count));
        // What compares every beginning with every end does not come back.
        let said = outcome(&blog(), query.trim());
        assert!(said.starts_with("createBlog") || said.starts_with("no plan"), "{said}");
    }
}

#[test]
fn lists_times_lists_are_a_few_calls_at_most() {
    let values: Vec<String> = (0..16).map(|it| format!("value{}", char::from(b'a' + it))).collect();
    let listed = values.join(", ");
    let names: Vec<String> = (0..16).map(|it| format!("field{}", char::from(b'a' + it))).collect();
    let fields: Map<String, Value> =
        names.iter().map(|it| (format!("{it}!"), json!({ "enum": values }))).collect();
    let said: Vec<String> = names.iter().map(|it| format!("{it} {listed}")).collect();
    let mut made = tool("mix", "Mix fields.", Value::Object(fields));
    made.effect = Effect::Read;
    let tools = catalog(vec![made]);
    if let Ok(proposal) = propose(&format!("mix {}", said.join(" with ")), &tools) {
        assert!(proposal.draft.tools.len() <= 64, "{}", proposal.draft.tools.len());
    }
}

#[tokio::test]
async fn what_takes_too_long_is_given_up() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (told, was_told) = std::sync::mpsc::channel();
    let planned = super::super::within(std::time::Duration::ZERO, move |stop| {
        held.recv().ok();
        told.send(stop.is_stopped()).ok();
        propose("list all authors", &blog())
    });
    let said = planned.await.map(|_| ()).unwrap_err().to_string();
    drop(release);
    assert!(was_told.recv().unwrap_or(true), "the work was not told to stop");
    assert!(said.starts_with("planning took longer than 0 s"), "{said}");
}

/// Words that make clauses likely, beside arbitrary ones.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => prop::sample::select(vec![
            "create", "author", "blog", "Alice", "by", "titled", "about", "saying", "then", "and", ",", ".", "it", "her", "that", "with", "email",
            "a@b.io", "\"", "'", "507f1f77bcf86cd799439011", "42", "the", "list", "all", "comments", "of", "to", "id", ":", "(", ")", "after",
            "creating", "delete", "update", "Alice's", "about", "result", "{{", "}}", "\n", ";", "1.", "tags", "tomorrow", "not", "set",
            "don't", "if", "I", "except", "?", "5 feet 11 inches", "2,5 kg", "between", "1.8 m", "$3 M", "degrees", "did", "but",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ];
    prop::collection::vec(word, 0..48).prop_map(|it| it.join(" "))
}

fn schema() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "integer" })),
        Just(json!({ "type": "boolean" })),
        Just(json!({ "type": "array", "items": { "type": "string" } })),
        Just(json!({ "type": "array", "items": { "type": "number" } })),
        Just(json!({ "enum": ["Alice", "", null, 3] })),
        Just(json!({ "enum": ["list", "all", "the", "comments", "of", "it", "her"] })),
        Just(json!({ "type": "number", "description": "In meters." })),
        Just(json!({ "type": "integer", "description": "How many (default 3)." })),
        Just(json!({ "$ref": "#/properties/title" })),
        Just(json!({ "type": "string", "format": "date" })),
        Just(json!("string")),
        Just(json!(null)),
        Just(json!([])),
    ]
}

fn any_tool() -> impl Strategy<Value = ToolDefinition> {
    let name = prop_oneof![
        "[a-z]{1,8}",
        "(create|list|get|delete|add)(Author|Blog|_x|-y|Things)",
        "[a-z]{1,4}\\.[a-zA-Z_]{1,8}"
    ];
    let field =
        prop_oneof!["[a-zA-Z_]{1,8}", "(author|blog)?[iI]d!?", "(title|content|name|email|tags)!?"];
    let fields = prop::collection::btree_map(field, schema(), 0..6);
    (name, "\\PC{0,40}", fields)
        .prop_map(|(name, description, fields)| tool(&name, &description, json!(fields)))
}

proptest! {
    #[test]
    fn no_query_panics(query in words()) {
        let (tools, again) = (blog(), blog());
        prop_assert_eq!(outcome(&tools, &query), outcome(&again, &query));
    }

    #[test]
    fn no_text_panics(query in "\\PC{0,200}") {
        outcome(&blog(), &query);
    }

    #[test]
    fn no_toolset_panics(query in words(), tools in prop::collection::vec(any_tool(), 0..12)) {
        let (once, again) = (propose(&query, &catalog(tools.clone())), propose(&query, &catalog(tools)));
        prop_assert_eq!(once, again);
    }

    #[test]
    fn every_draft_compiles(query in words()) {
        let tools = blog();
        if let Ok(proposal) = propose(&query, &tools) {
            let plan = compiled(&proposal, &tools);
            prop_assert_eq!(plan.steps().len(), proposal.draft.tools.len());
        }
    }
}
