use serde_json::json;

use super::*;
use crate::agent::tests::{mind, says};

async fn call(name: &str, mind: Arc<Mind>, parameters: Value) -> Result<Value, ToolError> {
    let tools = tools(&mind);
    let tool = tools.iter().find(|it| it.definition().name.as_str() == name).unwrap();
    tool.call(Arc::new(parameters), ToolContext::detached()).await
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn given(reach: Value) -> Value {
    json!({ "query": "do it", "turn": 1, "of": 3, "history": [], "reach": reach })
}

#[tokio::test]
async fn calls_go_where_their_effect_belongs() {
    let reply = says(
        "Well.",
        &[
            ("blog.make", json!({})),
            ("look", json!({})),
            ("blog.keep", json!({})),
            ("off.hidden", json!({})),
            ("blog.loook", json!({})),
            ("blog.look", json!([1])),
            ("faber_agent.call", json!({ "tool": "off.hidden", "args": {} })),
        ],
    );
    let (mind, _toolbox, model) = mind(vec![reply]);
    let turn = call("faber_agent.turn", mind, given(json!({}))).await.unwrap();
    let of = |key: &str| -> Vec<(u64, String)> {
        let list = turn[key].as_array().unwrap().iter();
        list.map(|it| (it["n"].as_u64().unwrap(), it["tool"].as_str().unwrap().to_owned()))
            .collect()
    };
    assert_eq!(of("call"), [(0, "blog.make".to_owned())]);
    assert_eq!(of("read"), [(1, "blog.look".to_owned())]);
    assert_eq!(of("repeat"), [(2, "blog.keep".to_owned())]);
    let errors: Vec<_> = turn["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["error"].as_str().unwrap())
        .collect();
    assert_eq!(
        errors,
        [
            "there is no tool `off.hidden` that may be called now",
            "there is no tool `blog.loook` that may be called now; did you mean `blog.look`?",
            "the arguments must be an object",
            "there is no tool `faber_agent.call` that may be called now",
        ]
    );
    assert_eq!((turn["more"].as_bool(), turn["text"].as_str()), (Some(true), Some("Well.")));
    let asked = model.asked.lock().unwrap();
    let offered: Vec<_> = asked[0].tools.iter().map(|it| it.name.as_str()).collect();
    assert!(offered.contains(&"blog.look") && !offered.contains(&"off.hidden"), "{offered:?}");
    assert!(!offered.iter().any(|it| it.starts_with("faber_agent.")), "{offered:?}");
}

#[tokio::test]
async fn only_what_is_within_reach_is_offered() {
    let (mind, _toolbox, model) = mind(vec![says("", &[("blog.make", json!({}))])]);
    let reach = json!({ "tools": ["blog.*"], "except": ["*.make"], "sets": ["blog", "flow"] });
    let turn = call("faber_agent.turn", mind, given(reach)).await.unwrap();
    let asked = model.asked.lock().unwrap();
    let offered: Vec<_> = asked[0].tools.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(offered, ["blog.look", "blog.keep"]);
    assert_eq!(turn["refused"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn calls_in_words_are_found() {
    let reply = || says("TOOL: blog.look ARGS: {}", &[]);
    let (native, _kept, _) = mind(vec![reply()]);
    let turn = call("faber_agent.turn", native, given(json!({}))).await.unwrap();
    assert_eq!(turn["read"][0]["tool"], "blog.look");
    assert_eq!(turn["read"][0].get("id"), None);
    // Whoever has a better way speaks of a tool where a call only looks like one.
    let spoken = || says("I would use blog.look() for that.", &[]);
    let (native, _kept, _) = mind(vec![spoken()]);
    let turn = call("faber_agent.turn", native, given(json!({}))).await.unwrap();
    assert_eq!(turn["more"], false);
    let (words, _kept, model) = mind(vec![spoken()]);
    let words = Mind {
        model: Arc::clone(&words.model),
        toolbox: words.toolbox.clone(),
        has_native_tools: false,
    };
    let turn = call("faber_agent.turn", Arc::new(words), given(json!({}))).await.unwrap();
    assert_eq!(turn["read"][0]["tool"], "blog.look");
    let asked = model.asked.lock().unwrap();
    assert!(asked[0].tools.is_empty());
    let Message::System(rules) = &asked[0].messages[0] else { panic!() };
    assert!(rules.contains("- blog.look") && rules.contains("TOOL: tool_name ARGS:"), "{rules}");
}

#[tokio::test]
async fn what_the_last_turn_said_is_the_answer() {
    let past = json!([
        { "turn": { "text": "", "more": true, "model": "m", "tokens": { "input": 5, "output": 1 },
                    "read": [{ "n": 0, "tool": "blog.look", "args": {}, "id": "a" }] },
          "read": [{ "tool": "blog.look", "status": "success", "result": 1 }] },
        { "turn": { "text": "It is one.", "more": false, "model": "m", "tokens": { "input": 6, "output": 2 } } },
        { "turn": null, "read": null, "repeat": null, "call": null },
    ]);
    let (mind, _toolbox, model) = mind(Vec::new());
    let given = json!({ "query": "how many?", "of": 3, "history": past });
    let answer = call("faber_agent.answer", mind, given).await.unwrap();
    assert_eq!(
        answer,
        json!({ "answer": "It is one.", "toolsUsed": ["blog.look"], "turns": 2,
                "limitReached": false, "tokens": { "input": 11, "output": 3 } })
    );
    assert!(model.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn whoever_had_all_turns_answers_with_a_note() {
    let past = json!([
        { "turn": { "text": "", "more": true, "model": "m", "tokens": { "input": 5, "output": 1 },
                    "read": [{ "n": 0, "tool": "blog.look", "args": {}, "id": "a" }] },
          "read": [{ "tool": "blog.look", "status": "success", "result": "the result" }] },
    ]);
    let (mind, _toolbox, model) = mind(vec![says("About one.", &[("blog.look", json!({}))])]);
    let given = json!({ "query": "how many?", "of": 1, "history": past });
    let answer = call("faber_agent.answer", mind, given).await.unwrap();
    assert_eq!(answer["answer"], format!("About one.\n\n{STOPPED}"));
    assert_eq!(answer["limitReached"], true);
    let asked = model.asked.lock().unwrap();
    assert_eq!(asked[0].messages[1], Message::User("how many?".to_owned()), "it is not forgotten");
    assert!(format!("{:?}", asked[0].messages).contains("the result"));
}

#[tokio::test]
async fn a_model_that_does_not_answer_fails_its_turn() {
    let (mind, _toolbox, _) = mind(Vec::new());
    let err = call("faber_agent.turn", mind, given(json!({}))).await.unwrap_err();
    assert_eq!((err.code.as_str(), err.retryable), ("tool.unavailable", true));
}

/// However much a model says and wants, and tools return, the next turn is given all of it.
#[test]
fn what_is_kept_of_all_turns_fits_into_one() {
    let (_mind, toolbox, _) = mind(Vec::new());
    let catalog = within(&toolbox, &Reach::default());
    let small = ("blog.look", json!({ "x": "\"".repeat(100) }));
    let large = ("blog.make", json!({ "x": "y".repeat(60_000) }));
    let strange = ("blog.loook", json!({ "x": "y".repeat(60_000) }));
    let wanted: Vec<_> =
        (0..50).flat_map(|_| [small.clone(), large.clone(), strange.clone()]).collect();
    for of in [1, 3, crate::agent::MOST_TURNS as usize] {
        let mut used = 0;
        for n in 1..=of {
            let turn =
                turn(says(&"w".repeat(1 << 20), &wanted), &catalog, true, Room::of(used, of - n));
            assert!(!turn.read.is_empty() && turn.text.len() > 1_000, "turn {n} of {of}");
            used += json::bytes(&serde_json::to_value(&turn).unwrap());
            for it in turn.read.iter().chain(&turn.repeat).chain(&turn.call) {
                let result = format!("{}… (cut: 32768 of 1048576 bytes)", "r".repeat(it.most));
                used += json::bytes(&json!({
                    "tool": it.tool, "status": "success", "result": result, "cut": true,
                }));
            }
        }
        assert!(used <= shared::limits::OUTPUT_BYTES, "{of} turns: {used}");
    }
}

#[tokio::test]
async fn arguments_that_are_too_large_are_refused_and_not_kept() {
    let reply = says("", &[("blog.make", json!({ "x": "y".repeat(1 << 20) }))]);
    let (mind, _toolbox, _) = mind(vec![reply]);
    let turn = call("faber_agent.turn", mind, given(json!({}))).await.unwrap();
    let refused = &turn["refused"][0];
    assert!(refused["error"].as_str().unwrap().starts_with("the arguments are too large: "));
    assert_eq!((&refused["args"], &turn["more"]), (&json!({}), &json!(true)));
}
