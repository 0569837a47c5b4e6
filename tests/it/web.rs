//! The web page in a real browser, against the real binary: the scripts are in `tests/web/`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tests::binary::faber;

/// Returns what `tests/run` says about the machine.
fn told(name: &str) -> PathBuf {
    let value = std::env::var_os(name).unwrap_or_else(|| {
        panic!("{name} is not set: run `./tests/run`, or `eval \"$(./tests/run --env)\"`")
    });
    let path = PathBuf::from(value);
    assert!(path.exists(), "`{}` is not there: run `./tests/run`", path.display());
    path
}

/// Runs a script of tests, each of which has its own limits.
fn run(script: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("web").join(script);
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=spec", "--test-timeout=600000"]).arg(path);
    command.env("FABER_TEST_BINARY", faber());
    command.env("FABER_TEST_WEB_MODULES", told("FABER_TEST_WEB_MODULES"));
    command.env("FABER_TEST_CHROMIUM", told("FABER_TEST_CHROMIUM"));
    let output = command.stdin(Stdio::null()).output().expect("node is needed: run `./tests/run`");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}: {}\n{said}", output.status);
}

#[test]
fn executions_are_watched() {
    run("watching.mjs");
}

#[test]
fn buttons_do_what_they_say() {
    run("steering.mjs");
}

#[test]
fn whatever_comes_from_elsewhere_is_text() {
    run("hostile.mjs");
}

#[test]
fn everybody_can_use_it() {
    run("living.mjs");
}

#[test]
fn plans_are_changed_without_a_loss() {
    run("plans.mjs");
}

#[test]
fn tools_and_the_toolkit_are_shown_as_they_are() {
    run("toolkit.mjs");
}

#[test]
fn what_stands_for_many_is_opened() {
    run("inside.mjs");
}

#[test]
fn failures_lead_with_their_cause() {
    run("failures.mjs");
}

#[test]
fn lists_find_what_is_looked_for() {
    run("finding.mjs");
}
