use std::process::Stdio;

use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{io::AsyncWriteExt, time::timeout};

use super::{
    running_command::RunningCommand,
    workspace::{CommandOutput, Workspace},
};

const TOOLS_FILE: &str = r#"{"tools_list": [
    {"name": "weather", "description": "Says what the weather will be.", "arguments": {"city": "Where."},
     "examples": ["Will it rain tomorrow?", "What is the weather like in Oslo?", "Is it sunny in Rome today?"]},
    {"name": "invoice", "description": "Writes an invoice for a customer.", "arguments": {"customer": "Who pays."},
     "examples": ["Bill the Miller company for ten hours", "Make an invoice for Anna", "Charge Bob 200 euros"]},
    {"name": "forecast", "description": "Forecasts the weather of a week.", "arguments": {"city": "Where."},
     "examples": ["How will the weather be next week in Oslo?", "Will it rain this week?"]},
    {"name": "translate", "description": "Translates a text into another language.",
     "arguments": {"text": "What.", "language": "Into what."}, "examples": []}
]}"#;

async fn workspace_with_tools() -> Workspace {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    let file = workspace.file("tools.json", TOOLS_FILE);
    let loaded = workspace.run(&["tools", "load", &file]).await;
    for name in ["weather", "invoice", "forecast", "translate"] {
        assert_eq!(printed_status(&loaded, name), "OK", "{loaded:?}");
    }
    workspace
}

/// A server in a workspace with the tools of `TOOLS_FILE`. All commands of a test use the server,
/// because it loads the encoder only once.
struct ServedWorkspace {
    workspace: Workspace,
    url: String,
    _server: RunningCommand,
}

impl ServedWorkspace {
    async fn new() -> Self {
        let workspace = workspace_with_tools().await;
        let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let line = server.wait_for_line("listening on http://").await;
        let url = line.rsplit(' ').next().unwrap().to_owned();
        Self { workspace, url, _server: server }
    }

    fn with_server<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [arguments, &["--server", self.url.as_str()]].concat()
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.workspace.run(&self.with_server(arguments)).await
    }

    async fn json(&self, arguments: &[&str], status: i32) -> Value {
        self.workspace.json(&self.with_server(arguments), status).await
    }
}

fn printed_status(loaded: &CommandOutput, name: &str) -> String {
    let line = loaded.out.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no `{name}`: {loaded:?}"));
    line.trim().trim_start_matches(name).trim().to_owned()
}

fn tool_names(found: &Value) -> Vec<&str> {
    let matches = found.as_array().unwrap_or_else(|| panic!("{found} is not a list")).iter();
    matches.map(|found| found["tool"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_that_are_loaded_once_can_be_selected_by_every_criterion() {
    let served = ServedWorkspace::new().await;
    let again = served.run(&["tools", "load", "tools.json"]).await;
    assert_eq!((again.status, printed_status(&again, "forecast").as_str()), (0, "ALREADY EXISTS"));
    let query = "Is it going to rain in Oslo?";
    let found = served.json(&["tools", "select", query], 0).await;
    assert_eq!(tool_names(&found).len(), 3, "a tool without examples is not ranked: {found}");
    assert!(["weather", "forecast"].contains(&tool_names(&found)[0]), "{found}");
    assert_eq!(tool_names(&found)[2], "invoice");
    assert!(found[0]["score"].as_f64() > found[2]["score"].as_f64(), "{found}");
    assert!(found[0]["leastSimilar"].is_f64(), "{found}");
    for by in ["description", "lexical", "hybrid"] {
        let found = served.json(&["tools", "select", "translate a text", "--by", by], 0).await;
        assert_eq!(tool_names(&found)[0], "translate", "{by}: {found}");
    }
    let output = served.run(&["tools", "select", "Invoice for Anna", "--limit", "1"]).await;
    assert!(output.out.contains("invoice") && !output.out.contains("weather"), "{output:?}");
    let pairs = served.run(&["tools", "collisions"]).await;
    assert!(pairs.out.contains("POSSIBLE SIMILAR TOOLS (0.3): 1"), "{pairs:?}");
    assert!(pairs.out.contains("weather -> forecast: 0."), "{pairs:?}");
    let pairs = served.json(&["tools", "collisions", "--threshold", "0.99", "--cosine"], 0).await;
    assert_eq!(pairs, json!([]));
    let clash = r#"{"tools_list": [{"name": "flow.echo", "description": "Is another one.",
        "examples": ["make a clash of names"]}]}"#;
    let loaded = served.run(&["tools", "load", &served.workspace.file("clash.json", clash)]).await;
    assert!(loaded.err.contains("this tool is `tools.flow.echo`"), "{loaded:?}");
    let output = served.run(&["tools", "select", "make a clash of names", "--limit", "1"]).await;
    assert!(output.out.contains("tools.flow.echo "), "{output:?}");
}

#[tokio::test]
async fn select_uses_the_margin_of_the_configuration() {
    let workspace = workspace_with_tools().await;
    for (margin, is_hit) in [("-2", true), ("2", false)] {
        let text =
            format!("toolsets: []\nstore: sqlite:./own.db\nselection: {{ margin: {margin} }}\n");
        workspace.file("faber.yaml", &text);
        let found = workspace.json(&["tools", "select", "Make an invoice for Anna"], 0).await;
        assert!(
            found.as_array().unwrap().iter().all(|found| found["hit"] == is_hit),
            "{margin}: {found}"
        );
    }
}

async fn run_with_input(
    served: &ServedWorkspace,
    arguments: &[&str],
    typed: &str,
) -> CommandOutput {
    let mut child = served
        .workspace
        .command(&served.with_server(arguments))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).await.unwrap();
    drop(stdin);
    let output =
        timeout(MAX_WAIT, child.wait_with_output()).await.expect("the command ends").unwrap();
    CommandOutput {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn select_without_a_query_asks_until_q_or_an_empty_line() {
    let served = ServedWorkspace::new().await;
    let typed = "What will the weather be in Oslo?\nHow are you?\nq\nWill it rain?\n";
    let ended = run_with_input(&served, &["tools", "select"], typed).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(ended.err.matches("Query (q to exit):").count(), 3, "{ended:?}");
    let answers: Vec<&str> = ended.out.split("CENTROID SIMILARITY HIT\n").skip(1).collect();
    assert_eq!(answers.len(), 2, "`q` ends the questions: {ended:?}");
    let (hit, nearest) = answers[0].split_once("CENTROID NEAREST\n").unwrap();
    let (nearest, description) = nearest.split_once("DESCRIPTION NEAREST\n").unwrap();
    for row in [hit, nearest, description] {
        let tool = row.trim_end().rsplit(": ").next().unwrap_or_default();
        assert!(row.starts_with("\t ") && ["weather", "forecast"].contains(&tool), "{ended:?}");
    }
    assert_eq!(hit, nearest);
    assert!(
        answers[1].starts_with("CENTROID NEAREST\n"),
        "there is no hit, but a nearest tool: {ended:?}"
    );
    // An empty line, or the end of the input, also ends the command. With `--json`, each answer is
    // a document.
    let ended = run_with_input(&served, &["tools", "select", "--json"], "rain\n\nsun\n").await;
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(tool_names(&answer["centroid"]).len(), 1, "{answer}");
    let ended =
        run_with_input(&served, &["tools", "select", "--by", "lexical", "--json"], "rain").await;
    assert!(
        tool_names(&serde_json::from_str(&ended.out).unwrap()).contains(&"weather"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn eval_computes_figures_from_a_file_of_queries() {
    let served = ServedWorkspace::new().await;
    let queries = served.workspace.file(
        "queries.jsonl",
        "{\"query\": \"write an invoice\", \"gold\": [\"tools.invoice\"]}\n\n\
         {\"query\": \"translate a text\", \"gold\": [\"translate\", \"invoice\"]}\n",
    );
    let figures = served.json(&["tools", "eval", "--queries", &queries], 0).await;
    let of = |by: &str| {
        let found = figures.as_array().unwrap().iter().find(|figure| figure["by"] == by).cloned();
        found.unwrap_or_else(|| panic!("no {by}: {figures}"))
    };
    assert_eq!(figures.as_array().unwrap().len(), 4);
    for by in ["DESCRIPTION", "HYBRID"] {
        assert_eq!((&of(by)["queries"], &of(by)["hitAt1"]), (&json!(2), &json!(1.0)), "{figures}");
        assert_eq!(of(by)["mrr"], 1.0, "{figures}");
    }
    // `invoice` has no word of the second query, and `translate` has no examples.
    assert_eq!(
        (&of("LEXICAL")["hitAt1"], &of("LEXICAL")["recallAt5"]),
        (&json!(1.0), &json!(0.75))
    );
    assert_eq!(of("CENTROID")["recallAt5"], 0.75);
    let output = served.run(&["tools", "eval", "--queries", &queries, "--by", "lexical"]).await;
    assert!(output.out.contains("LEXICAL") && !output.out.contains("HYBRID"), "{output:?}");
}

/// Regression: each of these mistakes counted as a missed tool, or printed a row of zeros, without
/// an error.
#[tokio::test]
async fn eval_rejects_an_invalid_query_file_and_names_the_line() {
    let workspace = workspace_with_tools().await;
    workspace.run(&["toolsets", "deactivate", "tools"]).await;
    let queries = workspace.file("q.jsonl", r#"{"query": "rain", "gold": ["weather"]}"#);
    let eval = ["tools", "eval", "--by", "lexical", "--queries"];
    let ended = workspace.run(&[&eval[..], &[&queries]].concat()).await;
    assert!(ended.status == 2 && ended.err.contains("`weather` is inactive"), "{ended:?}");
    workspace.json(&[&eval[..], &[&queries, "--all"]].concat(), 0).await;
    workspace.run(&["toolsets", "activate", "tools"]).await;
    let good = r#"{"query": "rain", "gold": ["tools.weather"]}"#;
    let unknown = r#"{"query": "rain", "gold": ["weather", "forcast"]}"#;
    let long = format!(r#"{{"query": "{}", "gold": ["weather"]}}"#, "x".repeat(100_000));
    for (text, parts) in [
        (String::new(), &["has no query", "on each line"][..]),
        ("\n \n".to_owned(), &["has no query"]),
        (format!("{good}\n\n{{\"query\": 7}}"), &["line 3", "\"gold\""]),
        (
            format!("{good}\n{{\"query\": \"a\", \"gold\": []}}"),
            &["line 2", "`gold` names no tool"],
        ),
        (
            format!("{good}\n{{\"query\": \" \", \"gold\": [\"t\"]}}"),
            &["line 2", "`query` is empty"],
        ),
        (
            format!("{good}\n{unknown}"),
            &["line 2: `forcast` is not the name of a tool: did you mean `forecast`?"],
        ),
        (format!("{unknown}\n").repeat(8), &["line 5: ", "and 3 more"]),
        (format!("{good}\n{long}"), &["line 2: `query` has 100000 bytes"]),
    ] {
        let file = workspace.file("wrong.jsonl", &text);
        let ended = workspace.run(&[&eval[..], &[&file]].concat()).await;
        let is_enough = parts.iter().all(|part| ended.err.contains(part));
        assert!(ended.status == 2 && is_enough && ended.out.is_empty(), "{parts:?}: {ended:?}");
    }
}

#[tokio::test]
async fn selection_without_an_embedder_names_the_setting() {
    let workspace = workspace_with_tools().await;
    workspace.file(
        "faber.yaml",
        "toolsets: []\nstore: sqlite:./own.db\nembedding: { builtin: false }\n",
    );
    let error = workspace.json(&["tools", "select", "rain"], 3).await;
    assert_eq!(error["error"]["code"], "PLANNER_UNAVAILABLE");
    assert!(error["error"]["message"].as_str().unwrap().contains("`embedding`"), "{error}");
    let found = workspace.json(&["tools", "select", "write an invoice", "--by", "hybrid"], 0).await;
    assert_eq!(tool_names(&found)[0], "invoice");
    let queries =
        workspace.file("queries.jsonl", r#"{"query": "an invoice", "gold": ["invoice"]}"#);
    let ended = workspace.run(&["tools", "eval", "--queries", &queries]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.out.contains("LEXICAL") && !ended.out.contains("CENTROID"), "{ended:?}");
    assert!(ended.err.contains("needs an embedding model"), "{ended:?}");
}

#[tokio::test]
async fn tools_load_accepts_a_valid_file_and_names_the_place_of_an_error() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    let good = "\u{feff}{\"tools_list\": [{\"name\": \"plain\", \"examples\": null}, \
        {\"name\": \"schema\", \"arguments\": {\"type\": \"object\", \
         \"properties\": {\"n\": {\"type\": \"integer\"}, \"m\": {}}, \"required\": [\"n\"]}}]}";
    let loaded = workspace.run(&["tools", "load", &workspace.file("good.json", good)]).await;
    assert_eq!(
        (printed_status(&loaded, "plain"), printed_status(&loaded, "schema")),
        ("OK".into(), "OK".into())
    );
    let answer = workspace.json(&["tools", "show", "schema"], 0).await;
    assert_eq!(answer["inputSchema"]["required"], json!(["n"]), "{answer}");
    assert_eq!(answer["inputSchema"]["properties"]["n"]["type"], "integer", "{answer}");
    let tools = |wrong: &str| format!(r#"{{"tools_list": [{{"name": "first"}}, {wrong}]}}"#);
    for (wrong, part) in [
        (r#"{"name": "t", "example": []}"#, "`tools_list[1]` (`t`): there is no field `example`"),
        (r#"{"name": "t", "examples": {}}"#, "`tools_list[1]` (`t`): `examples` must be a list"),
        ("{}", "`tools_list[1]`: `name` is missing"),
    ] {
        let ended =
            workspace.run(&["tools", "load", &workspace.file("wrong.json", &tools(wrong))]).await;
        assert!(ended.status == 2 && ended.err.contains(part), "{part}: {ended:?}");
        let none = workspace.run(&["tools", "show", "first"]).await;
        assert_eq!(none.status, 2, "no tool of an invalid file is loaded: {none:?}");
    }
    // An error that the registration finds names the place of the tool in the file, too.
    let odd = workspace.file("wrong.json", &tools(r#"{"name": "odd", "run": 7}"#));
    let ended = workspace.run(&["tools", "load", &odd]).await;
    assert!(ended.status == 2 && ended.err.contains("`tools_list[1]` (`odd`): "), "{ended:?}");
    assert!(ended.err.contains("; the tools before it are loaded"), "{ended:?}");
    workspace.json(&["tools", "show", "first"], 0).await;
    // The setting `tools_files` reads the same file as `faber tools load`.
    workspace
        .file("faber.yaml", "toolsets: []\ntools_files: [good.json]\nstore: sqlite:./other.db\n");
    assert_eq!(
        workspace.json(&["tools", "show", "schema"], 0).await["inputSchema"],
        answer["inputSchema"]
    );
}

#[tokio::test]
async fn tools_without_examples_are_selected_by_words_and_description() {
    let workspace = Workspace::new();
    let tool = "{ name: createBlog, description: Create a new blog post, run: { command: [cat] } }";
    let set = format!("toolsets: [{{ name: own, source: {{ tools: [{tool}] }} }}]\n");
    workspace.file("faber.yaml", &set);
    let ended = workspace.run(&["tools", "select", "write a new blog"]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.out.contains("createBlog"), "{ended:?}");
    assert!(ended.err.contains("as with `--by hybrid`"), "{ended:?}");
    let ended = workspace.run(&["tools", "select", "write a new blog", "--by", "centroid"]).await;
    assert!(ended.err.contains("add some, or use `--by hybrid`"), "{ended:?}");
    assert!(!ended.out.contains("createBlog"), "{ended:?}");
}

#[tokio::test]
async fn the_tools_of_the_demo_have_examples() {
    let workspace = Workspace::new();
    let found =
        workspace.json(&["tools", "select", "write a blog post", "--by", "centroid"], 0).await;
    assert_eq!(found[0]["tool"]["name"], "createBlog", "{found:#}");
    assert!(
        found[0]["tool"]["examples"].as_array().is_some_and(|examples| examples.len() == 3),
        "{found:#}"
    );
    assert_eq!(found[0]["hit"], true, "{found:#}");
}

#[tokio::test]
async fn bench_select_prints_all_its_figures() {
    let workspace = Workspace::new();
    let figures = workspace.json(&["bench", "select", "--steps", "60", "--runs", "2"], 0).await;
    for name in [
        "vectors_made_and_kept_s",
        "vectors_loaded_s",
        "collisions_s",
        "centroid_p50_ms",
        "description_p99_ms",
        "lexical_p50_ms",
        "hybrid_p50_ms",
        "hybrid_4_parts_p50_ms",
        "one_more_tool_ms",
        "builtin_encoder_p50_ms",
        "wall_s",
    ] {
        assert!(figures[name].is_number(), "{name}: {figures:#}");
    }
    assert_eq!((&figures["workload"], &figures["tools"]), (&json!("select"), &json!(60)));
    assert_eq!(figures["vectors"], 360);
    assert_eq!(figures["texts_embedded_again"], 0, "all vectors came from the store");
    assert_eq!(figures["one_more_tool_texts"], 1);
}
