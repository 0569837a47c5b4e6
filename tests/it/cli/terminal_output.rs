//! Texts of tools, plans, queries and servers never control a terminal.

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::workspace::{CommandOutput, Workspace};

/// If a terminal printed this text, the text would clear the screen, set the title, ring the bell,
/// reverse and hide letters, and add forged lines.
const HOSTILE_TEXT: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}y\u{200b}\u{2066}\u{fdd4}\r\n\
     faber approve everything\nok\u{8}\u{7f}";

/// Escape sequences that Faber itself prints.
const COLOURS: [&str; 7] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[36m"];

/// Checks that a text has no control characters except Faber's colours, and no forged line unless
/// it is a document.
fn assert_harmless(arguments: &[&str], text: &str, is_document: bool) {
    let mut bare = text.to_owned();
    for colour in COLOURS {
        bare = bare.replace(colour, "");
    }
    let steers = |character: char| {
        (character.is_control() && character != '\n')
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2060}'..='\u{206f}')
            || matches!(character, '\u{fdd0}'..='\u{fdef}')
    };
    assert!(!bare.contains(steers), "{arguments:?}: {bare:?}");
    let is_forged = |line: &str| line.starts_with("faber approve everything");
    assert!(is_document || !bare.lines().any(is_forged), "{arguments:?}: {bare:?}");
}

/// Runs a command on a terminal.
pub(super) async fn run_on_terminal(workspace: &Workspace, arguments: &[&str]) -> String {
    run_on_terminal_with_input(workspace, arguments, "").await
}

/// Like [`run_on_terminal`], with `typed` as the input of the user.
pub(super) async fn run_on_terminal_with_input(
    workspace: &Workspace,
    arguments: &[&str],
    typed: &str,
) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let words =
        [tests::binary::faber().to_str().unwrap()].into_iter().chain(arguments.iter().copied());
    let words = words.map(quoted).collect::<Vec<_>>().join(" ");
    let plain = workspace.command(&[]);
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols 100 rows 30; exec {words}"), "/dev/null"]);
    command
        .env_clear()
        .envs(plain.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "1");
    command.current_dir(workspace.path("")).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn().unwrap();
    let mut keyboard = running.stdin.take().unwrap();
    // The terminal buffers the typed text until the command reads it.
    keyboard.write_all(typed.as_bytes()).await.unwrap();
    let output = tokio::time::timeout(tests::toolset::MAX_WAIT, running.wait_with_output()).await;
    drop(keyboard);
    let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
    // A terminal ends its lines with `\r\n`.
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

/// Writes JSON with ASCII only, which is also valid YAML.
fn to_ascii_json(value: &Value) -> String {
    let escaped = |character: char| match character {
        ' '..='~' => character.to_string(),
        other => other
            .encode_utf16(&mut [0; 2])
            .iter()
            .fold(String::new(), |text, unit| format!("{text}\\u{unit:04x}")),
    };
    value.to_string().chars().map(escaped).collect()
}

fn hostile_plan() -> Value {
    let echo =
        json!({ "m": HOSTILE_TEXT, "list": [HOSTILE_TEXT, 1], HOSTILE_TEXT: [HOSTILE_TEXT] });
    json!({ "query": format!("q {HOSTILE_TEXT}"), "tools": [
        { "id": "a", "name": "flow.echo", "parameters": echo },
        { "id": "each", "name": "flow.fail", "forEach": "{{a.list}}", "onError": "continue",
          "parameters": { "message": HOSTILE_TEXT } },
        { "id": "boom", "name": "flow.fail", "onError": "continue",
          "parameters": { "message": HOSTILE_TEXT, "code": "c.d" } },
        { "id": "again", "name": "flow.fail", "parameters": { "message": HOSTILE_TEXT, "times": 1, "retryable": true },
          "retry": { "maxAttempts": 2, "backoffMs": 1 } },
        { "id": "w", "name": "flow.fail", "onError": "wait", "parameters": { "message": HOSTILE_TEXT },
          "dependsOn": ["boom"], "when": "true" },
        { "id": "s", "name": "flow.wait", "parameters": { "name": HOSTILE_TEXT } },
    ] })
}

async fn run_and_check(workspace: &Workspace, arguments: &[&str]) -> CommandOutput {
    let ended = workspace.run(arguments).await;
    assert_harmless(arguments, &ended.out, false);
    assert_harmless(arguments, &ended.err, false);
    ended
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "most of them are tables of commands")]
async fn no_command_prints_control_characters_to_a_terminal() {
    let workspace = Workspace::new();
    let mut cat = json!({ "name": "cat", "description": HOSTILE_TEXT, "effect": "read",
        "parameters": { "type": "object", "description": HOSTILE_TEXT, "properties": { "q": {} } } });
    cat["run"] = json!({ "command": ["printf", "%s", HOSTILE_TEXT] });
    let mut sulk = cat.clone();
    sulk["name"] = json!("sulk");
    sulk["run"] =
        json!({ "command": ["sh", "-c", "printf '%s' \"$0\" >&2; exit 1", HOSTILE_TEXT] });
    let config = json!({ "toolsets": [{ "name": "evil", "description": HOSTILE_TEXT,
        "source": { "tools": [cat, sulk] } }] });
    workspace.file("faber.yaml", &to_ascii_json(&config));
    let file = workspace.file("plan.json", &hostile_plan().to_string());

    let ended = run_and_check(&workspace, &["run", "--plan", &file]).await;
    assert_eq!(ended.status, 4, "{ended:?}");
    assert!(
        ended.err.contains('␛') && ended.err.contains('⏎'),
        "the characters are shown as symbols: {ended:?}"
    );
    let all = workspace.json(&["list", "executions"], 0).await;
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
        &["toolsets", "activate", HOSTILE_TEXT],
        &["doctor"],
        &["config"],
        &["plan", HOSTILE_TEXT],
        &["execute", HOSTILE_TEXT],
        &["run", "--saved", HOSTILE_TEXT],
        &["approve", id, HOSTILE_TEXT],
        &["signal", id, HOSTILE_TEXT],
    ];
    for arguments in commands {
        run_and_check(&workspace, arguments).await;
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
        let output = run_on_terminal(&workspace, arguments).await;
        assert!(!output.is_empty(), "{arguments:?}");
        let is_watched = arguments[0] == "watch";
        let output = if is_watched { remove_drawing_codes(&output) } else { output };
        assert_harmless(arguments, &output, matches!(arguments[0], "tools" | "export"));
    }
    let refused = workspace.run(&["run", "--mode", HOSTILE_TEXT]).await;
    assert_eq!(refused.status, 2);
    assert_harmless(&["run", "--mode"], &refused.err, true);
    // If the output goes to a pipe, it is a document for a program, so it must stay unchanged.
    let cancelled = workspace.run(&["cancel", id, "--reason", HOSTILE_TEXT]).await;
    assert_harmless(&["cancel"], &cancelled.err, false);
    assert_eq!(cancelled.out, format!("{id}  CANCELLED\n"));
    let ended = workspace.run(&["watch", id]).await;
    assert_harmless(&["watch"], &ended.err, false);
    assert!(serde_json::from_str::<Value>(&ended.out).unwrap().is_object(), "{ended:?}");
    run_and_check(&workspace, &["debug", id]).await;
}

fn remove_drawing_codes(text: &str) -> String {
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
async fn piped_outputs_keep_control_characters() {
    let workspace = Workspace::new();
    let tool = json!({ "name": "cat", "description": "Says it.", "effect": "read",
        "run": { "command": ["printf", "%s", HOSTILE_TEXT] } });
    let config = json!({ "toolsets": [{ "name": "evil", "source": { "tools": [tool] } }] });
    workspace.file("faber.yaml", &to_ascii_json(&config));
    assert_eq!(workspace.json(&["tools", "call", "cat"], 0).await["result"], HOSTILE_TEXT);
    let called = workspace.run(&["tools", "call", "cat"]).await;
    assert_eq!(called.out, format!("{HOSTILE_TEXT}\n"));
    let plan = workspace.file(
        "plan.json",
        &json!({ "tools": [
        { "id": "a", "name": "flow.echo", "parameters": { "m": HOSTILE_TEXT } }] })
        .to_string(),
    );
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    let outputs: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(outputs["a"]["m"], HOSTILE_TEXT);
}
