//! Tests of the documentation: the real binary runs console blocks, links lead to files and
//! headings, and guides for embedders show code of `examples/`, which cargo compiles.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tests::{binary::faber, installed};
use tokio::{process::Command, time::timeout};

use crate::mongod::Mongod;

/// Time limit for a page. If a page hangs, its script stops a little before this limit and names
/// the command.
const PAGE_LIMIT: Duration = Duration::from_mins(5);
/// Number of pages whose examples run at the same time.
const PAGES_AT_ONCE: usize = 2;
const BLESS_VARIABLE: &str = "FABER_BLESS";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

fn list_pages() -> Vec<PathBuf> {
    let folders =
        ["docs/tutorials", "docs/how-to", "docs/operating", "docs/reference", "docs/explanation"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(repository().join(folder)).unwrap());
    let files = files.map(|entry| entry.unwrap().path()).chain([repository().join("README.md")]);
    let mut pages: Vec<_> = files.filter(|path| has_examples(path)).collect();
    pages.sort();
    pages
}

fn has_examples(path: &Path) -> bool {
    let is_example = |line: &str| line.trim_start() == "```console";
    path.extension().is_some_and(|kind| kind == "md")
        && fs::read_to_string(path).unwrap().lines().any(is_example)
}

/// Runs the examples of a page. Runs them a second time if an output differs, because on a busy
/// machine a process can be stopped before it has printed all lines of the page. Returns the
/// differences.
async fn check_page(page: PathBuf) -> Option<String> {
    run_page(&page).await?;
    run_page(&page).await
}

async fn run_page(page: &Path) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/console.py");
    let mut command = Command::new(installed::find_program("python3"));
    command.arg(script).args(std::env::var_os(BLESS_VARIABLE).map(|_| "--bless")).arg(page);
    command
        .env("FABER_TEST_BINARY", faber())
        .env("FABER_TEST_MONGODB", Mongod::shared().await.new_database_url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let Ok(output) = timeout(PAGE_LIMIT, command.output()).await else {
        return Some(format!("{}: does not end", page.display()));
    };
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn every_console_example_prints_what_its_page_shows() {
    let pages = list_pages();
    assert!(pages.len() > 12, "{pages:?}");
    let checks = stream::iter(pages).map(check_page).buffer_unordered(PAGES_AT_ONCE);
    let problems: Vec<String> = checks.filter_map(std::future::ready).collect().await;
    let advice = "if a message changed on purpose, `FABER_BLESS=1` writes the new outputs";
    assert!(problems.is_empty(), "{}\n{advice}", problems.join("\n"));
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/links.py");
    let output = std::process::Command::new(installed::find_program("python3"))
        .arg(script)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn check_generated(script: &str) {
    let output = std::process::Command::new(installed::find_program("python3"))
        .arg(repository().join(script))
        .arg("--check")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn the_list_for_assistants_has_every_page() {
    check_generated("docs/llms.py");
}

#[test]
fn pictures_show_what_their_script_draws() {
    check_generated("docs/images/draw.py");
}

fn code_blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn non_empty_lines(code: &str) -> String {
    let lines: Vec<_> = code.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[test]
fn guides_for_embedders_show_code_of_the_example_that_cargo_compiles() {
    let example = non_empty_lines(&read("examples/embed.rs"));
    for page in ["docs/how-to/embed-in-rust.md", "docs/how-to/rust-functions.md"] {
        let text = read(page);
        let blocks = code_blocks(&text, "rust");
        assert!(!blocks.is_empty(), "{page}");
        for block in blocks {
            assert!(
                example.contains(&non_empty_lines(block)),
                "{page}: `examples/embed.rs` lacks\n{block}"
            );
        }
    }
}

#[test]
fn the_guide_for_embedders_lists_every_crate_of_the_example() {
    let page = read("docs/how-to/embed-in-rust.md");
    let dependencies = code_blocks(&page, "toml").concat();
    let listed: BTreeSet<_> =
        dependencies.lines().filter_map(|line| line.split_once(" = ")).map(|pair| pair.0).collect();
    let example = read("examples/embed.rs");
    let code: Vec<_> = example.lines().filter(|line| !line.starts_with("#![")).collect();
    let code = code.join("\n");
    let words = code.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')));
    let crates = words.filter_map(|word| word.split_once("::")).map(|pair| pair.0);
    let is_crate = |name: &&str| name.starts_with(|c: char| c.is_lowercase()) && *name != "std";
    let used: BTreeSet<_> = crates.filter(is_crate).collect();
    assert_eq!(listed, used);
}
