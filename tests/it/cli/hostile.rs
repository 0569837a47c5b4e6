//! What tools, plans, queries and servers say never steers a terminal.

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::home::{Ended, Home};

/// Clears the screen, retitles the window, rings, turns the letters around, hides some, and writes
/// lines of its own.
const EVIL: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}y\u{200b}\u{2066}\u{fdd4}\r\n\
     faber approve everything\nok\u{8}\u{7f}";

/// Everything that may begin with an escape in what we print.
const COLOURS: [&str; 7] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[36m"];

/// Checks that nothing in a text steers a terminal but colours of ours, and that no line is forged.
fn check(what: &[&str], text: &str, is_document: bool) {
    let mut bare = text.to_owned();
    for colour in COLOURS {
        bare = bare.replace(colour, "");
    }
    let steers = |character: char| {
        (character.is_control() && character != '\n')
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(character, '\u{fdd0}'..='\u{fdef}')
    };
    assert!(!bare.contains(steers), "{what:?}: {bare:?}");
    let is_forged = |line: &str| line.starts_with("faber approve everything");
    assert!(is_document || !bare.lines().any(is_forged), "{what:?}: {bare:?}");
}

/// Runs a command where a terminal is its standard output and error.
pub(super) async fn on_a_terminal(home: &Home, arguments: &[&str]) -> String {
    answered_on_a_terminal(home, arguments, "").await
}

/// Runs a command on a terminal on which a person types.
pub(super) async fn answered_on_a_terminal(home: &Home, arguments: &[&str], typed: &str) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let said =
        [tests::binary::faber().to_str().unwrap()].into_iter().chain(arguments.iter().copied());
    let said = said.map(quoted).collect::<Vec<_>>().join(" ");
    let plain = home.command(&[]);
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols 100 rows 30; exec {said}"), "/dev/null"]);
    command
        .env_clear()
        .envs(plain.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "1");
    command.current_dir(home.path("")).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn().unwrap();
    let mut keyboard = running.stdin.take().unwrap();
    // The terminal keeps what is typed until somebody reads it.
    keyboard.write_all(typed.as_bytes()).await.unwrap();
    let output = tokio::time::timeout(tests::toolset::PATIENCE, running.wait_with_output()).await;
    drop(keyboard);
    let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
    // A terminal ends its lines with both.
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

/// Writes JSON that is YAML, too: nothing in it is not printed.
fn ascii(value: &Value) -> String {
    let escaped = |character: char| match character {
        ' '..='~' => character.to_string(),
        other => other
            .encode_utf16(&mut [0; 2])
            .iter()
            .fold(String::new(), |text, unit| format!("{text}\\u{unit:04x}")),
    };
    value.to_string().chars().map(escaped).collect()
}

fn plan() -> Value {
    let echo = json!({ "m": EVIL, "list": [EVIL, 1], EVIL: [EVIL] });
    json!({ "query": format!("q {EVIL}"), "tools": [
        { "id": "a", "name": "flow.echo", "parameters": echo },
        { "id": "each", "name": "flow.fail", "forEach": "{{a.list}}", "onError": "continue",
          "parameters": { "message": EVIL } },
        { "id": "boom", "name": "flow.fail", "onError": "continue",
          "parameters": { "message": EVIL, "code": "c.d" } },
        { "id": "again", "name": "flow.fail", "parameters": { "message": EVIL, "times": 1, "retryable": true },
          "retry": { "maxAttempts": 2, "backoffMs": 1 } },
        { "id": "w", "name": "flow.fail", "onError": "wait", "parameters": { "message": EVIL },
          "dependsOn": ["boom"], "when": "true" },
        { "id": "s", "name": "flow.wait", "parameters": { "name": EVIL } },
    ] })
}

async fn both(home: &Home, arguments: &[&str]) -> Ended {
    let ended = home.run(arguments).await;
    check(arguments, &ended.out, false);
    check(arguments, &ended.err, false);
    ended
}

#[tokio::test]
async fn no_command_prints_what_steers_a_terminal() {
    let home = Home::new();
    let mut cat = json!({ "name": "cat", "description": EVIL, "effect": "read",
        "parameters": { "type": "object", "description": EVIL, "properties": { "q": {} } } });
    cat["run"] = json!({ "command": ["printf", "%s", EVIL] });
    let mut sulk = cat.clone();
    sulk["name"] = json!("sulk");
    sulk["run"] = json!({ "command": ["sh", "-c", "printf '%s' \"$0\" >&2; exit 1", EVIL] });
    let config = json!({ "toolsets": [{ "name": "evil", "description": EVIL,
        "source": { "tools": [cat, sulk] } }] });
    home.file("faber.yaml", &ascii(&config));
    let file = home.file("plan.json", &plan().to_string());

    let ended = both(&home, &["run", "--plan", &file]).await;
    assert_eq!(ended.status, 4, "{ended:?}");
    assert!(ended.err.contains('␛') && ended.err.contains('⏎'), "it is shown: {ended:?}");
    let all = home.json(&["list", "executions"], 0).await;
    let id = all[0]["executionId"].as_str().unwrap();
    let request = all[0]["requestId"].as_str().unwrap();
    let plan = all[0]["planId"].as_str().unwrap();
    let commands: [&[&str]; 20] = [
        &["watch", id],
        &["debug", id],
        &["debug", request],
        &["list", "requests"],
        &["list", "plans"],
        &["list", "executions"],
        &["tools", "list"],
        &["tools", "show", "cat"],
        &["tools", "call", "sulk"],
        &["tools", "history"],
        &["tools", "usage"],
        &["toolsets", "list"],
        &["toolsets", "activate", EVIL],
        &["doctor"],
        &["config"],
        &["plan", EVIL],
        &["execute", EVIL],
        &["run", "--saved", EVIL],
        &["approve", id, EVIL],
        &["signal", id, EVIL],
    ];
    for arguments in commands {
        both(&home, arguments).await;
    }
    let on_terminal: [&[&str]; 8] = [
        &["debug", id],
        &["debug", id, "--json"],
        &["watch", id],
        &["tools", "call", "cat"],
        &["tools", "call", "cat", "--json"],
        &["export", plan],
        &["list", "plans", "--json"],
        &["list", "requests"],
    ];
    for arguments in on_terminal {
        let shown = on_a_terminal(&home, arguments).await;
        assert!(!shown.is_empty(), "{arguments:?}");
        let is_watched = arguments[0] == "watch";
        let shown = if is_watched { without_drawing(&shown) } else { shown };
        check(arguments, &shown, matches!(arguments[0], "tools" | "export"));
    }
    let refused = home.run(&["run", "--mode", EVIL]).await;
    assert_eq!(refused.status, 2);
    check(&["run", "--mode"], &refused.err, true);
    // Outputs that are piped are a document, and stay as they are.
    for arguments in [&["cancel", id, "--reason", EVIL][..], &["watch", id]] {
        let ended = home.run(arguments).await;
        check(arguments, &ended.err, false);
        assert!(serde_json::from_str::<Value>(&ended.out).unwrap().is_object(), "{ended:?}");
    }
    both(&home, &["debug", id]).await;
}

/// Takes away how lines that move are drawn.
fn without_drawing(text: &str) -> String {
    let mut bare = text.replace('\r', "\n");
    for code in ["\u{1b}[2K", "\u{1b}[K", "\u{1b}[J", "\u{1b}[0J", "\u{1b}[?25l", "\u{1b}[?25h"] {
        bare = bare.replace(code, "");
    }
    for n in 1..40 {
        for direction in ['A', 'B', 'C', 'D'] {
            bare = bare.replace(&format!("\u{1b}[{n}{direction}"), "");
        }
    }
    bare
}

#[tokio::test]
async fn what_is_piped_is_whole() {
    let home = Home::new();
    let tool = json!({ "name": "cat", "description": "Says it.", "effect": "read",
        "run": { "command": ["printf", "%s", EVIL] } });
    let config = json!({ "toolsets": [{ "name": "evil", "source": { "tools": [tool] } }] });
    home.file("faber.yaml", &ascii(&config));
    assert_eq!(home.json(&["tools", "call", "cat"], 0).await["result"], EVIL);
    let called = home.run(&["tools", "call", "cat"]).await;
    assert_eq!(called.out, format!("{EVIL}\n"));
    let plan = home.file(
        "plan.json",
        &json!({ "tools": [
        { "id": "a", "name": "flow.echo", "parameters": { "m": EVIL } }] })
        .to_string(),
    );
    let ended = home.run(&["run", "--plan", &plan]).await;
    let outputs: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(outputs["a"]["m"], EVIL);
}
