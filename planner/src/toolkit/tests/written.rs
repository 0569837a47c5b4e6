use serde_json::json;

use super::*;
use crate::toolkit::written::{ReadToolkit, read, write};

#[test]
fn chains_stay_separate_and_share_tools() {
    let file = json!({
        "app": { "name": "x" },
        "tools": [
            { "name": "Reader", "type": "LOCAL_TOOL", "module_path": "a.b" },
            { "name": "Writer" },
            { "name": "Writer", "desc": "Writes.", "type": "MCP", "mcp_transport_config": {} },
        ],
        "actions": [
            { "name": "look", "desc": "Looks.", "tools": [{ "name": "Reader" }] },
            { "name": "think", "tools": [{ "name": "Reader", "score": 0.5 }, { "name": "Nobody" }] },
            { "name": "say", "tools": [{ "name": "Writer" }] },
            { "name": "rest" },
        ],
        "toolkit": [
            [{ "name": "look" }, { "name": "nothing" }, { "name": "think", "score": 0.7 }],
            [],
            [{ "name": "say" }],
        ],
    });
    let ReadToolkit { toolkit, warnings } = read(&file).unwrap();
    assert_eq!(names(&toolkit), ["look", "say", "think", "Writer", "Reader"]);
    let edges: Vec<String> = toolkit
        .ordered_edges()
        .iter()
        .map(|edge| format!("{}>{} {}", edge.from, edge.to, edge.score))
        .collect();
    let expected = ["look>think 0.7", "look>Reader 1", "say>Writer 1", "think>Reader 0.5"];
    assert_eq!(edges, expected);
    let expected = [
        "`tools[2]`: tool `Writer` exists twice; the last one counts",
        "`toolkit[0][1]`: there is no action `nothing`; the name was left out",
        "action `think`: `tools` has no `Nobody`; the tool was left out",
        "action `rest` is in no chain of `toolkit` and was left out",
    ];
    assert_eq!(warnings, expected);
    let writer = toolkit.tool("Writer").unwrap();
    assert_eq!((writer.description.as_str(), &writer.origin), ("Writes.", &Some(Origin::Mcp)));
    let origin = Some(Origin::Module("a.b".to_owned()));
    assert_eq!(toolkit.tool("Reader").unwrap().origin, origin);
}

#[test]
fn an_invalid_toolkit_file_is_explained() {
    for (file, expected) in [
        (json!([]), "a toolkit is a map with `tools`, `actions` and `toolkit`"),
        (json!({ "tools": ["x"] }), "`tools[0]` must be a map with a `name`"),
        (json!({ "tools": {} }), "`tools` must be a list"),
        (json!({ "tools": [{}] }), "`tools[0]` has no `name`"),
        (
            json!({ "tools": [{ "name": "x", "type": "REMOTE" }] }),
            "`tools[0].type` is `REMOTE`; it must be either LOCAL_TOOL or MCP",
        ),
        (
            json!({ "actions": [{ "name": "" }] }),
            "`actions[0].name`: `` is not the name of an action or a tool: 1 to 256 bytes \
             without control characters",
        ),
        (json!({ "toolkit": ["x"] }), "`toolkit[0]` must be a list of actions"),
        (
            json!({ "actions": [{ "name": "x" }], "toolkit": [[{ "name": "x", "score": "y" }]] }),
            "`toolkit[0][0].score` must be a number",
        ),
        (
            json!({
                "tools": [{ "name": "x" }], "actions": [{ "name": "x", "tools": [{ "name": "x" }] }],
                "toolkit": [[{ "name": "x" }]],
            }),
            "`toolkit[0]`: `x` is already an action, and a name can have only one meaning: use \
             another name",
        ),
    ] {
        assert_eq!(read(&file).unwrap_err(), expected);
    }
    assert_eq!(read(&json!({})).unwrap(), ReadToolkit::default());
    let nulls = json!({ "tools": null, "actions": null, "toolkit": null });
    assert_eq!(read(&nulls).unwrap(), ReadToolkit::default());
}

#[test]
fn a_graph_is_written_in_the_format_it_is_read() {
    let written = write(&seed());
    assert_eq!(
        written["toolkit"][0],
        json!([
            { "name": "a1" }, { "name": "a2", "score": 0.8 }, { "name": "a3", "score": 0.7 },
            { "name": "a4", "score": 0.7 },
        ])
    );
    assert_eq!(written["actions"][0]["tools"], json!([{ "name": "t1", "score": 0.9 }]));
    let read = read(&written).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    assert_eq!(read.toolkit, seed(), "the order of addition counts");
    let expected = json!(["a1", "a2", "a3", "a4", "t1", "t2", "t3", "t4"]);
    assert_eq!(written["order"], expected);
    // A file has no `order` if the chains already define the order.
    let chain = json!({ "actions": [{ "name": "b" }, { "name": "a" }],
        "toolkit": [[{ "name": "b" }, { "name": "a" }]] });
    let graph = crate::toolkit::written::read(&chain).unwrap().toolkit;
    assert_eq!(write(&graph).get("order"), None);
}

#[test]
fn a_misspelt_key_is_an_error_and_keys_of_other_programs_are_ignored() {
    let read_keys = |keys: serde_json::Value| read(&keys).map(|read| read.warnings.len());
    assert_eq!(
        read_keys(json!({ "tools": [], "leader": 1, "toolkit_version": 2, "env": 3 })),
        Ok(0)
    );
    let expected = "`toolz` is unknown: did you mean `tools`?";
    assert_eq!(read_keys(json!({ "toolz": [] })), Err(expected.to_owned()));
}

#[test]
fn an_order_lists_known_nodes_and_others_come_last() {
    let file = |order: serde_json::Value| {
        json!({ "actions": [{ "name": "a" }, { "name": "b" }, { "name": "c" }],
            "toolkit": [[{ "name": "a" }], [{ "name": "b" }], [{ "name": "c" }]], "order": order })
    };
    let ReadToolkit { toolkit, warnings } = read(&file(json!(["c", "x", "a", "c"]))).unwrap();
    assert_eq!(names(&toolkit), ["c", "a", "b"], "names that `order` lacks come last");
    assert_eq!(warnings, ["`order[1]`: there is no `x`; the name was left out"]);
    for (order, expected) in
        [(json!("c"), "`order` must be a list"), (json!([1]), "`order[0]` must be a name")]
    {
        assert_eq!(read(&file(order)).unwrap_err(), expected);
    }
}
