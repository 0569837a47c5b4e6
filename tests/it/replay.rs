//! The real binary replays recorded plans. Parameters and outputs must have the same type as in the
//! recording, and be equal to the last bit.

use std::{fs, path::Path, process::Stdio};

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tests::{binary::faber, installed, toolset::MAX_WAIT};
use tokio::{process::Command, time::timeout};

/// Calculates with IEEE 754 numbers in Python.
const CALCULATOR_SCRIPT: &str = r#"
import json, math, operator, sys
a = list(json.load(sys.stdin).values())
operators = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
             "divide": operator.truediv, "sqrt": math.sqrt, "inverse": lambda x: 1 / x}
print(json.dumps(operators[sys.argv[1]](*a)))
"#;

/// Saves its input, and prints the recorded output.
const REPLAY_SCRIPT: &str = r#"cat >"$FABER_STEP_ID.given"; cat "$FABER_STEP_ID.response""#;

/// Each line is `{"id", "plan": [{"id", "tool", "args": [number or {"ref": step}]}], "values":
/// {step: number}}`.
const ARITHMETIC_CASES: &str = include_str!("../replay/arithmetic.jsonl");

/// Each line is `{"id", "steps": [{"label", "tool", "arguments", "deps", "resolved",
/// "response"}]}`.
const RECORDED_CASES: &str = include_str!("../replay/recorded.jsonl");

#[tokio::test]
async fn replayed_calculations_are_equal_to_the_last_bit() {
    for case in parse_cases(ARITHMETIC_CASES) {
        for mode in ["sequential", "parallel"] {
            let folder = tempfile::tempdir().unwrap();
            let steps = case["plan"].as_array().unwrap();
            let tools: Vec<Value> = steps.iter().map(calculation_step).collect();
            let commands =
                ["add", "subtract", "multiply", "divide", "sqrt", "inverse"].map(|name| {
                    (
                        name,
                        json!([
                            installed::find_program("python3"),
                            "-S",
                            "-c",
                            CALCULATOR_SCRIPT,
                            name
                        ]),
                    )
                });
            let done = run_plan(&folder, &commands, &tools, mode).await;
            let bits = |number: &Value| number.as_f64().map(f64::to_bits);
            for (step, must) in case["values"].as_object().unwrap() {
                let is = &done["outputs"][step];
                let is_equal = must.is_f64() && is.is_f64() && bits(is) == bits(must);
                assert!(is_equal, "{step} of {}: {is}, not {must}", case["id"]);
            }
        }
    }
}

#[tokio::test]
async fn replayed_references_keep_the_recorded_values() {
    for case in parse_cases(RECORDED_CASES) {
        let folder = tempfile::tempdir().unwrap();
        let steps = case["steps"].as_array().unwrap();
        for step in steps {
            fs::write(step_file(folder.path(), step, "response"), step["response"].to_string())
                .unwrap();
        }
        let command = json!(["sh", "-c", REPLAY_SCRIPT]);
        let commands: Vec<_> =
            steps.iter().map(|step| (step["tool"].as_str().unwrap(), command.clone())).collect();
        let tools: Vec<Value> = steps.iter().map(recorded_step).collect();
        let done = run_plan(&folder, &commands, &tools, "parallel").await;
        for step in steps {
            let label = step["label"].as_str().unwrap();
            let of = |list: &Value| {
                let mut all = list.as_array().unwrap().iter();
                all.find(|step| step["stepId"] == label).cloned().unwrap()
            };
            // Compares texts, because they show the sequence of keys and the difference between 1
            // and 1.0.
            let given = fs::read_to_string(step_file(folder.path(), step, "given")).unwrap();
            assert_eq!(given, step["resolved"].to_string(), "{label} of {}", case["id"]);
            let is = of(&done["steps"])["resolvedParameters"].to_string();
            assert_eq!(is, given, "{label} of {}", case["id"]);
            let is = done["outputs"][label].to_string();
            assert_eq!(is, step["response"].to_string(), "{label} of {}", case["id"]);
            assert_eq!(of(&done["plan"]["tools"])["dependsOn"], step["deps"], "{label}");
        }
    }
}

fn parse_cases(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn step_file(folder: &Path, step: &Value, extension: &str) -> std::path::PathBuf {
    folder.join(format!("{}.{extension}", step["label"].as_str().unwrap()))
}

fn calculation_step(step: &Value) -> Value {
    let argument = |argument: &Value| match argument.get("ref") {
        Some(step) => json!(format!("{{{{{}}}}}", step.as_str().unwrap())),
        None => argument.clone(),
    };
    let arguments = step["args"].as_array().unwrap().iter().map(argument);
    let parameters: Map<String, Value> =
        ["a", "b"].map(str::to_owned).into_iter().zip(arguments).collect();
    json!({ "id": step["id"], "name": step["tool"], "parameters": parameters })
}

fn recorded_step(step: &Value) -> Value {
    json!({ "id": step["label"], "name": step["tool"], "parameters": step["arguments"] })
}

async fn run_plan(
    folder: &TempDir,
    commands: &[(&str, Value)],
    tools: &[Value],
    mode: &str,
) -> Value {
    let mut set = Map::new();
    for (name, command) in commands {
        let tool = json!({
            "name": name,
            "effect": "idempotent",
            "parameters": { "type": "object" },
            "run": { "command": command, "cwd": folder.path() },
        });
        set.insert((*name).to_owned(), tool);
    }
    let set: Vec<Value> = set.into_iter().map(|(_, tool)| tool).collect();
    let config = json!({ "toolsets": [{ "name": "replay", "source": { "tools": set } }] });
    fs::write(folder.path().join("faber.yaml"), config.to_string()).unwrap();
    fs::write(folder.path().join("plan.json"), json!({ "tools": tools }).to_string()).unwrap();
    let mut command = Command::new(faber());
    command.args(["run", "--plan", "plan.json", "--json", "--mode", mode]);
    command.current_dir(folder.path()).env_clear().env("HOME", folder.path());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(MAX_WAIT, command.output()).await.expect("the command ends").unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    serde_json::from_str(&out).unwrap()
}
