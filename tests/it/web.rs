//! The web page in a real browser, against the real binary. The scripts are in `tests/web/`.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use tests::{binary::faber, installed};

fn run_script(script: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("web").join(script);
    let mut command = Command::new(installed::find_program("node"));
    command.args(["--test", "--test-reporter=spec", "--test-timeout=600000"]).arg(path);
    command.env("FABER_TEST_BINARY", faber());
    command.env(
        "FABER_TEST_WEB_MODULES",
        installed::find_path("FABER_TEST_WEB_MODULES", "web/node_modules"),
    );
    command.env("FABER_TEST_CHROMIUM", installed::find_path("FABER_TEST_CHROMIUM", "chromium"));
    let output = command.stdin(Stdio::null()).output().expect("node starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}: {}\n{text}", output.status);
}

#[test]
fn the_page_shows_running_executions() {
    run_script("watching.mjs");
}

#[test]
fn buttons_of_the_page_control_executions() {
    run_script("steering.mjs");
}

#[test]
fn the_page_shows_hostile_texts_as_text() {
    run_script("hostile.mjs");
}

#[test]
fn the_page_is_accessible() {
    run_script("accessible.mjs");
}

#[test]
fn the_page_is_used_by_keyboard_with_large_plans_and_with_tokens() {
    run_script("living.mjs");
}

#[test]
fn the_page_edits_plans_without_losing_fields() {
    run_script("plans.mjs");
}

#[test]
fn the_page_shows_tools_and_the_toolkit() {
    run_script("toolkit.mjs");
}

#[test]
fn the_page_opens_loops_and_sub_plans() {
    run_script("inside.mjs");
}

#[test]
fn the_page_shows_causes_of_failures_first() {
    run_script("failures.mjs");
}

#[test]
fn lists_of_the_page_can_be_searched_and_filtered() {
    run_script("finding.mjs");
}

#[test]
fn the_overview_shows_what_needs_a_person_and_what_failed() {
    run_script("overview.mjs");
}

#[test]
fn people_answer_all_approvals_on_one_page() {
    run_script("approvals.mjs");
}

#[test]
fn the_search_and_its_filters_find_executions_and_change_many() {
    run_script("search.mjs");
}

#[test]
fn the_page_shows_saved_plans_schedules_nodes_and_usage() {
    run_script("pages.mjs");
}

#[test]
fn the_page_disables_what_the_role_does_not_permit() {
    run_script("access.mjs");
}

#[test]
fn values_can_be_searched_copied_and_downloaded() {
    run_script("viewer.mjs");
}

#[test]
fn the_page_shows_all_logs_and_compares_executions() {
    run_script("compare.mjs");
}

#[test]
fn the_editor_finds_tools_and_has_all_fields_of_a_step() {
    run_script("editor.mjs");
}

#[test]
fn an_ended_execution_is_forked_with_changes() {
    run_script("fork.mjs");
}
