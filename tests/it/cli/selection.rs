//! Selection from the command line, by the built-in encoder.

use std::process::Stdio;

use serde_json::{Value, json};
use tests::toolset::PATIENCE;
use tokio::{io::AsyncWriteExt, time::timeout};

use super::{
    begun::Begun,
    home::{Ended, Home},
};

/// Tools as people describe them.
const TOOLS: &str = r#"{"tools_list": [
    {"name": "weather", "description": "Says what the weather will be.", "arguments": {"city": "Where."},
     "examples": ["Will it rain tomorrow?", "What is the weather like in Oslo?", "Is it sunny in Rome today?"]},
    {"name": "invoice", "description": "Writes an invoice for a customer.", "arguments": {"customer": "Who pays."},
     "examples": ["Bill the Miller company for ten hours", "Make an invoice for Anna", "Charge Bob 200 euros"]},
    {"name": "forecast", "description": "Forecasts the weather of a week.", "arguments": {"city": "Where."},
     "examples": ["How will the weather be next week in Oslo?", "Will it rain this week?"]},
    {"name": "translate", "description": "Translates a text into another language.",
     "arguments": {"text": "What.", "language": "Into what."}, "examples": []}
]}"#;

/// A home whose tools are these.
async fn with_tools() -> Home {
    let home = Home::new();
    home.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    let file = home.file("tools.json", TOOLS);
    let loaded = home.run(&["tools", "load", &file]).await;
    for name in ["weather", "invoice", "forecast", "translate"] {
        assert_eq!(status(&loaded, name), "OK", "{loaded:?}");
    }
    home
}

/// A server over a home with these tools: the encoder is opened once for many commands.
struct Served {
    home: Home,
    url: String,
    _server: Begun,
}

impl Served {
    async fn new() -> Self {
        let home = with_tools().await;
        let mut server = home.begin(&["serve", "--listen", "127.0.0.1:0"]);
        let line = server.line("listening on http://").await;
        let url = line.rsplit(' ').next().unwrap().to_owned();
        Self { home, url, _server: server }
    }

    fn at<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [arguments, &["--server", self.url.as_str()]].concat()
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.home.run(&self.at(arguments)).await
    }

    async fn json(&self, arguments: &[&str], status: i32) -> Value {
        self.home.json(&self.at(arguments), status).await
    }
}

/// Returns what stands behind the name of a tool.
fn status(loaded: &Ended, name: &str) -> String {
    let line = loaded.out.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no `{name}`: {loaded:?}"));
    line.trim().trim_start_matches(name).trim().to_owned()
}

fn names(found: &Value) -> Vec<&str> {
    let matches = found.as_array().unwrap_or_else(|| panic!("{found} is no list")).iter();
    matches.map(|found| found["tool"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_loaded_once_and_selected() {
    let served = Served::new().await;
    let again = served.run(&["tools", "load", "tools.json"]).await;
    assert_eq!((again.status, status(&again, "forecast").as_str()), (0, "ALREADY EXISTS"));
    let query = "Is it going to rain in Oslo?";
    let found = served.json(&["tools", "select", query], 0).await;
    assert_eq!(names(&found).len(), 3, "one without examples takes no part: {found}");
    assert!(["weather", "forecast"].contains(&names(&found)[0]), "{found}");
    assert_eq!(names(&found)[2], "invoice");
    assert!(found[0]["score"].as_f64() > found[2]["score"].as_f64(), "{found}");
    assert!(found[0]["leastSimilar"].is_f64(), "{found}");
    for by in ["description", "lexical", "hybrid"] {
        let found = served.json(&["tools", "select", "translate a text", "--by", by], 0).await;
        assert_eq!(names(&found)[0], "translate", "{by}: {found}");
    }
    let shown = served.run(&["tools", "select", "Invoice for Anna", "--limit", "1"]).await;
    assert!(shown.out.contains("invoice") && !shown.out.contains("weather"), "{shown:?}");
    let pairs = served.run(&["tools", "collisions"]).await;
    assert!(pairs.out.contains("POSSIBLE SIMILAR TOOLS (0.3): 1"), "{pairs:?}");
    assert!(pairs.out.contains("weather -> forecast: 0."), "{pairs:?}");
    let pairs = served.json(&["tools", "collisions", "--threshold", "0.99", "--cosine"], 0).await;
    assert_eq!(pairs, json!([]));
    // The plain name of this one means another tool.
    let clash = r#"{"tools_list": [{"name": "flow.echo", "description": "Is another one.",
        "examples": ["make a clash of names"]}]}"#;
    let loaded = served.run(&["tools", "load", &served.home.file("clash.json", clash)]).await;
    assert!(loaded.err.contains("this one is `tools.flow.echo`"), "{loaded:?}");
    let shown = served.run(&["tools", "select", "make a clash of names", "--limit", "1"]).await;
    assert!(shown.out.contains("tools.flow.echo "), "{shown:?}");
}

#[tokio::test]
async fn the_margin_is_the_configurations() {
    let home = with_tools().await;
    for (margin, is_hit) in [("-2", true), ("2", false)] {
        let text =
            format!("toolsets: []\nstore: sqlite:./own.db\nselection: {{ margin: {margin} }}\n");
        home.file("faber.yaml", &text);
        let found = home.json(&["tools", "select", "Make an invoice for Anna"], 0).await;
        assert!(
            found.as_array().unwrap().iter().all(|found| found["hit"] == is_hit),
            "{margin}: {found}"
        );
    }
}

/// Asks one question after another.
async fn loop_of(served: &Served, arguments: &[&str], typed: &str) -> Ended {
    let mut child =
        served.home.command(&served.at(arguments)).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).await.unwrap();
    drop(stdin);
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
    Ended {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn questions_are_asked_until_there_is_none() {
    let served = Served::new().await;
    let typed = "What will the weather be in Oslo?\nHow are you?\nq\nWill it rain?\n";
    let ended = loop_of(&served, &["tools", "select"], typed).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(ended.err.matches("Query (q to exit):").count(), 3, "{ended:?}");
    let answers: Vec<&str> = ended.out.split("CENTROID SIMILARITY HIT\n").skip(1).collect();
    assert_eq!(answers.len(), 2, "nothing is asked behind `q`: {ended:?}");
    let (hit, nearest) = answers[0].split_once("CENTROID NEAREST\n").unwrap();
    let (nearest, description) = nearest.split_once("DESCRIPTION NEAREST\n").unwrap();
    for row in [hit, nearest, description] {
        let tool = row.trim_end().rsplit(": ").next().unwrap_or_default();
        assert!(row.starts_with("\t ") && ["weather", "forecast"].contains(&tool), "{ended:?}");
    }
    assert_eq!(hit, nearest);
    assert!(answers[1].starts_with("CENTROID NEAREST\n"), "no hit, but a nearest: {ended:?}");
    // An empty line ends it, too, and so does the end; each answer is a document with `--json`.
    let ended = loop_of(&served, &["tools", "select", "--json"], "rain\n\nsun\n").await;
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(names(&answer["centroid"]).len(), 1, "{answer}");
    let ended = loop_of(&served, &["tools", "select", "--by", "lexical", "--json"], "rain").await;
    assert!(names(&serde_json::from_str(&ended.out).unwrap()).contains(&"weather"), "{ended:?}");
}

#[tokio::test]
async fn figures_are_made_of_ones_own_queries() {
    let served = Served::new().await;
    let queries = served.home.file(
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
    // `invoice` has no word of the second query, and `translate` no examples.
    assert_eq!(
        (&of("LEXICAL")["hitAt1"], &of("LEXICAL")["recallAt5"]),
        (&json!(1.0), &json!(0.75))
    );
    assert_eq!(of("CENTROID")["recallAt5"], 0.75);
    let shown = served.run(&["tools", "eval", "--queries", &queries, "--by", "lexical"]).await;
    assert!(shown.out.contains("LEXICAL") && !shown.out.contains("HYBRID"), "{shown:?}");
}

/// Each of these was a miss, or a row of zeros, and nobody knew.
#[tokio::test]
async fn figures_are_made_of_nothing_that_cannot_be_right() {
    let home = with_tools().await;
    home.run(&["toolsets", "deactivate", "tools"]).await;
    let queries = home.file("q.jsonl", r#"{"query": "rain", "gold": ["weather"]}"#);
    let eval = ["tools", "eval", "--by", "lexical", "--queries"];
    let ended = home.run(&[&eval[..], &[&queries]].concat()).await;
    assert!(ended.status == 2 && ended.err.contains("`weather` is inactive"), "{ended:?}");
    home.json(&[&eval[..], &[&queries, "--all"]].concat(), 0).await;
    home.run(&["toolsets", "activate", "tools"]).await;
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
        let file = home.file("wrong.jsonl", &text);
        let ended = home.run(&[&eval[..], &[&file]].concat()).await;
        let is_told = parts.iter().all(|part| ended.err.contains(part));
        assert!(ended.status == 2 && is_told && ended.out.is_empty(), "{parts:?}: {ended:?}");
    }
}

#[tokio::test]
async fn without_an_embedder_it_says_what_to_configure() {
    let home = with_tools().await;
    home.file(
        "faber.yaml",
        "toolsets: []\nstore: sqlite:./own.db\nembedding: { builtin: false }\n",
    );
    let error = home.json(&["tools", "select", "rain"], 3).await;
    assert_eq!(error["error"]["code"], "PLANNER_UNAVAILABLE");
    assert!(error["error"]["message"].as_str().unwrap().contains("`embedding`"), "{error}");
    let found = home.json(&["tools", "select", "write an invoice", "--by", "hybrid"], 0).await;
    assert_eq!(names(&found)[0], "invoice");
    let queries = home.file("queries.jsonl", r#"{"query": "an invoice", "gold": ["invoice"]}"#);
    let ended = home.run(&["tools", "eval", "--queries", &queries]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.out.contains("LEXICAL") && !ended.out.contains("CENTROID"), "{ended:?}");
    assert!(ended.err.contains("needs an embedding model"), "{ended:?}");
}

#[tokio::test]
async fn a_file_of_tools_is_taken_or_told_what_is_wrong_with_it() {
    let home = Home::new();
    home.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    let good = "\u{feff}{\"tools_list\": [{\"name\": \"plain\", \"examples\": null}, \
        {\"name\": \"schema\", \"arguments\": {\"type\": \"object\", \
         \"properties\": {\"n\": {\"type\": \"integer\"}, \"m\": {}}, \"required\": [\"n\"]}}]}";
    let loaded = home.run(&["tools", "load", &home.file("good.json", good)]).await;
    assert_eq!((status(&loaded, "plain"), status(&loaded, "schema")), ("OK".into(), "OK".into()));
    let shown = home.json(&["tools", "show", "schema"], 0).await;
    assert_eq!(shown["inputSchema"]["required"], json!(["n"]), "{shown}");
    assert_eq!(shown["inputSchema"]["properties"]["n"]["type"], "integer", "{shown}");
    let tools = |wrong: &str| format!(r#"{{"tools_list": [{{"name": "first"}}, {wrong}]}}"#);
    for (wrong, part) in [
        (r#"{"name": "t", "example": []}"#, "`tools_list[1]` (`t`): there is no field `example`"),
        (r#"{"name": "t", "examples": {}}"#, "`tools_list[1]` (`t`): `examples` must be a list"),
        ("{}", "`tools_list[1]`: `name` is missing"),
    ] {
        let ended = home.run(&["tools", "load", &home.file("wrong.json", &tools(wrong))]).await;
        assert!(ended.status == 2 && ended.err.contains(part), "{part}: {ended:?}");
        let none = home.run(&["tools", "show", "first"]).await;
        assert_eq!(none.status, 2, "nothing of a file with something wrong is loaded: {none:?}");
    }
    // What only the registry can tell is told with its place, too.
    let odd = home.file("wrong.json", &tools(r#"{"name": "odd", "run": 7}"#));
    let ended = home.run(&["tools", "load", &odd]).await;
    assert!(ended.status == 2 && ended.err.contains("`tools_list[1]` (`odd`): "), "{ended:?}");
    assert!(ended.err.contains("; the tools before it are loaded"), "{ended:?}");
    home.json(&["tools", "show", "first"], 0).await;
    // The configuration reads the same files.
    home.file("faber.yaml", "toolsets: []\ntools_files: [good.json]\nstore: sqlite:./other.db\n");
    assert_eq!(
        home.json(&["tools", "show", "schema"], 0).await["inputSchema"],
        shown["inputSchema"]
    );
}

#[tokio::test]
async fn tools_without_examples_are_chosen_by_what_they_have() {
    let home = Home::new();
    let tool = "{ name: createBlog, description: Create a new blog post, run: { command: [cat] } }";
    let set = format!("toolsets: [{{ name: own, source: {{ tools: [{tool}] }} }}]\n");
    home.file("faber.yaml", &set);
    let ended = home.run(&["tools", "select", "write a new blog"]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.out.contains("createBlog"), "{ended:?}");
    assert!(ended.err.contains("as with `--by hybrid`"), "{ended:?}");
    let ended = home.run(&["tools", "select", "write a new blog", "--by", "centroid"]).await;
    assert!(ended.err.contains("add some, or use `--by hybrid`"), "{ended:?}");
    assert!(!ended.out.contains("createBlog"), "{ended:?}");
}

#[tokio::test]
async fn the_demo_has_examples() {
    let home = Home::new();
    let found = home.json(&["tools", "select", "write a blog post", "--by", "centroid"], 0).await;
    assert_eq!(found[0]["tool"]["name"], "createBlog", "{found:#}");
    assert!(
        found[0]["tool"]["examples"].as_array().is_some_and(|examples| examples.len() == 3),
        "{found:#}"
    );
    assert_eq!(found[0]["hit"], true, "{found:#}");
}

#[tokio::test]
async fn the_bench_of_selection_measures_all_that_it_says() {
    let home = Home::new();
    let figures = home.json(&["bench", "select", "--steps", "60", "--runs", "2"], 0).await;
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
    assert_eq!(figures["texts_embedded_again"], 0, "all of them came from the store");
    assert_eq!(figures["one_more_tool_texts"], 1);
}
