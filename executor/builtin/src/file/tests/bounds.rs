//! Bounds on the time, memory and output of searches.

use std::{
    fs::{self, File},
    io::{self, Read},
    time::{Duration, Instant, SystemTime},
};

use expect_test::expect;
use serde_json::json;
use shared::limits;
use tokio_util::sync::CancellationToken;
use toolbox::ToolContext;

use crate::{
    file::{
        grep,
        search::{self, SearchEnd, SeenLine},
    },
    root::{EntryKind, StopReason, StopSignal, Walk, WalkRules},
    tests::project::Project,
};

#[tokio::test]
async fn long_outputs_are_cut_with_a_note() {
    let project = Project::new();
    project.write_file("many", "needle and thread\n".repeat(5_000));
    project.write_file("wide", format!("needle {}\n", "ü".repeat(5_000)));
    for index in 0..1_200 {
        project.write_file(&format!("d/{index:04}"), "needle\n");
    }
    let call = async |args| project.call("grep", args).await;
    let lines =
        call(json!({ "pattern": "needle", "output_mode": "content", "path": "many" })).await;
    assert_eq!(lines.lines().count(), 1_001);
    let stopped = "(stopped at 1000 lines: there may be more; narrow the pattern or the path)";
    assert!(lines.ends_with(stopped), "{}", &lines[lines.len() - 200..]);
    let files = call(json!({ "pattern": "needle" })).await;
    assert_eq!(files.lines().next(), Some("Found 1000 file(s) with matches:"));
    assert!(
        files.ends_with(
            "(stopped at 1000 files: there may be more; narrow the pattern or the path)"
        )
    );
    let wide = call(json!({ "pattern": "needle", "output_mode": "content", "path": "wide" })).await;
    assert!(wide.len() < 1_100 && wide.ends_with(" … (line cut: 10008 bytes)"), "{wide}");
    let exact = call(json!({ "pattern": "0999|0000", "path": "d" })).await;
    assert!(!exact.contains("stopped"));
}

/// Regression: matches were missed in files that a program had written as one line.
#[tokio::test]
async fn grep_finds_and_shows_a_match_in_a_long_line() {
    let project = Project::new();
    let data = format!("{{\"a\":\"{}\",\"needle\":1}}", "ü".repeat(1 << 20));
    project.write_file("data.json", format!("needle\n{data}\nneedle\n"));
    let call = async |mode: &str| {
        project.call("grep", json!({ "pattern": "needle", "output_mode": mode })).await
    };
    assert_eq!(call("count").await, "data.json:3");
    let lines = call("content").await;
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "data.json:1:needle", "data.json:3:needle"));
    let end = format!("ü\",\"needle\":1}} (line cut: {} bytes)", data.len() + 1);
    assert!(lines[1].starts_with("data.json:2:… ü") && lines[1].ends_with(&end), "{}", lines[1]);
    assert!(lines[1].len() < 400, "{}", lines[1]);
    let far = format!("{}needle{}\n", "a".repeat(3_000), "b".repeat(3_000));
    project.write_file("data.json", &far);
    let line = call("content").await;
    assert!(line.starts_with("data.json:1:… aaa") && line.contains("aneedleb"), "{line}");
    assert!(line.ends_with("bbb … (line cut: 6007 bytes)") && line.len() < 1_100, "{line}");
    // If the match is near the start of a line, the output shows the start of the line.
    project.write_file("data.json", format!("needle{}\n", "b".repeat(3_000)));
    assert!(call("content").await.starts_with("data.json:1:needlebbb"));
}

#[tokio::test]
async fn grep_reports_a_line_that_is_too_long_to_search() {
    let project = Project::new();
    project
        .write_file("huge.json", format!("needle\n{}needle\n", "x".repeat(search::MAX_LINE_BYTES)));
    let call = async |args| project.call("grep", args).await;
    let note = "(1 file(s), such as huge.json, have a line that is too long, and only the lines \
                before it were searched: use `bash` if it is active)";
    let found = call(json!({ "pattern": "needle", "output_mode": "count" })).await;
    assert_eq!(found, format!("huge.json:1\n{note}"));
    let missing = call(json!({ "pattern": "nothing" })).await;
    assert_eq!(missing, format!("No matches found for pattern: nothing\n{note}"));
}

#[tokio::test]
async fn a_listing_of_a_huge_folder_is_bounded() {
    let project = Project::in_memory();
    fs::create_dir(project.path("huge")).unwrap();
    for index in 0..100_000 {
        File::create(project.path(&format!("huge/{index:06}.txt"))).unwrap();
    }
    project.write_file("z/last.txt", "");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    File::open(project.path("z/last.txt")).unwrap().set_modified(time).unwrap();
    let glob = project.call("glob", json!({ "pattern": "*.txt" })).await;
    assert!(
        glob.starts_with("Found 100001 file(s) matching '*.txt':\n  z/last.txt\n"),
        "{}",
        &glob[..200]
    );
    assert!(glob.ends_with("(the newest 1000 are shown: narrow the pattern or the path)"));
    assert_eq!(glob.lines().count(), 1_002);
    let tree = project.call("tree", json!({})).await;
    assert!(tree.contains("│   └── … 99800 more\n└── z/\n    └── last.txt\n"), "{tree}");
    for output in [&glob, &tree] {
        assert!(output.len() < limits::OUTPUT_BYTES / 6);
    }
    let info = project.call("file_info", json!({ "file_path": "huge" })).await;
    assert!(info.ends_with("Entries: 100000 or more"), "{info}");
}

#[tokio::test]
async fn a_walk_is_bounded_in_width_and_depth() {
    let project = Project::new();
    project.write_file(&format!("{}x.txt", "d/".repeat(199)), "");
    project.write_file(&format!("{}y.txt", "d/".repeat(250)), "");
    let glob = project.call("glob", json!({ "pattern": "*.txt" })).await;
    let glob = glob.replace(&"d/".repeat(199), "…/");
    expect![[r"
        Found 1 file(s) matching '*.txt':
          …/x.txt
        (1 file(s) or folder(s) could not be read)"]]
    .assert_eq(&glob);

    let project = Project::with_files(&["a", "b", "c", "d"].map(|path| (path, "")));
    let stop = StopSignal::new(CancellationToken::new(), None);
    let mut walk = Walk::new(&project.root, WalkRules::Git, &stop).with_limit(3);
    walk.set_start("".as_ref(), EntryKind::Folder).unwrap();
    let mut count = 0;
    while walk.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    expect!["(stopped after 500000 files and folders: there may be more; narrow the pattern or the path)"].assert_eq(&walk.closing_notes(None).concat());
}

struct EndlessReader;

impl Read for EndlessReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = b"needle\n"[index % 7]);
        Ok(buffer.len() / 7 * 7)
    }
}

#[test]
fn a_search_stops_in_the_middle_of_a_file_when_it_is_cancelled() {
    let cancel = CancellationToken::new();
    let stop = StopSignal::new(cancel.clone(), None);
    let matcher = search::build_matcher("needle", false).unwrap();
    let mut seen = 0;
    let on_line = |line: SeenLine<'_>| {
        seen += usize::from(matches!(line, SeenLine::Match { .. }));
        if seen == 1_000 {
            cancel.cancel();
        }
        true
    };
    let end = search::search_reader(
        EndlessReader,
        &stop,
        &mut search::build_searcher(0),
        &matcher,
        on_line,
    );
    assert_eq!(end, SearchEnd::Halted(StopReason::Cancelled));
    assert!(seen >= 1_000);
}

#[test]
fn a_search_stops_at_its_time_limit() {
    let stop = StopSignal::new(CancellationToken::new(), Some(Duration::from_millis(50)));
    let matcher = search::build_matcher("thread", false).unwrap();
    let started_at = Instant::now();
    let end = search::search_reader(
        EndlessReader,
        &stop,
        &mut search::build_searcher(0),
        &matcher,
        |_| true,
    );
    assert_eq!(end, SearchEnd::Halted(StopReason::TimeUp));
    assert!(started_at.elapsed() < Duration::from_secs(20));

    let project = Project::with_files(&[("a.txt", "x"), ("b.txt", "x")]);
    let late = StopSignal::new(CancellationToken::new(), Some(Duration::ZERO));
    let args = |json| serde_json::from_value(json).unwrap();
    let text =
        grep::search_contents(&project.root, &args(json!({ "pattern": "x" })), &late).unwrap();
    expect![[r"
        No matches found for pattern: x
        (stopped after 30 s: there may be more; narrow the pattern or the path)"]]
    .assert_eq(&text);
    let mut walk = Walk::new(&project.root, WalkRules::Git, &late);
    let folder = walk.set_start("".as_ref(), EntryKind::Folder).unwrap();
    let entries = walk.list_folder(&folder).unwrap();
    assert_eq!(entries.len(), 0);
    expect![[r#"
        [
            "(stopped after 30 s: there may be more; narrow the pattern or the path)",
        ]
    "#]]
    .assert_debug_eq(&walk.closing_notes(None));
}

#[tokio::test]
async fn a_cancelled_grep_returns_that_it_was_cancelled() {
    let project = Project::with_files(&[("a.txt", "x")]);
    let cx = ToolContext::detached();
    cx.cancel.cancel();
    let error = project.call_in("grep", json!({ "pattern": "x" }), cx).await.unwrap_err();
    assert_eq!(error.code.as_str(), "tool.cancelled");
    let cancel = CancellationToken::new();
    let stop = StopSignal::new(cancel.clone(), None);
    cancel.cancel();
    let args = serde_json::from_value(json!({ "pattern": "x" })).unwrap();
    let error = grep::search_contents(&project.root, &args, &stop).unwrap_err();
    assert_eq!(error.code.as_str(), "tool.cancelled");
}

#[tokio::test]
async fn an_endless_line_needs_bounded_memory() {
    let project = Project::with_files(&[("a.txt", "needle")]);
    project.write_file("long", "needle ".repeat(3 << 20));
    project
        .check(
            "grep",
            json!({ "pattern": "needle" }),
            expect![[r"
                Found 1 file(s) with matches:
                  a.txt
                (1 file(s), such as long, have a line that is too long, and only the lines before it were searched: use `bash` if it is active)"]],
        )
        .await;
}

#[tokio::test]
async fn a_name_with_a_line_break_is_shown_on_one_line() {
    let project = Project::with_files(&[("a\n  evil.txt", "needle\n")]);
    project
        .check(
            "glob",
            json!({ "pattern": "*" }),
            expect![[r"
                Found 1 file(s) matching '*':
                  a\n  evil.txt"]],
        )
        .await;
    project
        .check(
            "grep",
            json!({ "pattern": "needle", "output_mode": "content" }),
            expect![[r"a\n  evil.txt:1:needle"]],
        )
        .await;
    project
        .check(
            "tree",
            json!({}),
            expect![[r"
                ./
                └── a\n  evil.txt

                0 folder(s), 1 file(s)"]],
        )
        .await;
}

#[tokio::test]
async fn a_glob_pattern_that_is_too_complex_is_rejected() {
    let project = Project::with_files(&[("a.txt", &"ab".repeat(200_000))]);
    for pattern in ["[ab]*a[ab]{50000}", "(?:a|b)*a(?:a|b){9999}", r"\pL*a\pL{2000}"] {
        let output = project.call("grep", json!({ "pattern": pattern })).await;
        assert!(output.contains("Invalid pattern"), "{output}");
    }
    for pattern in
        [r"(\w+)\s*=\s*(\w+)\s+\w+\(\w+, \w+\)", "[0-9a-f]{64}", r"\p{Greek}+ä?", "a{500}"]
    {
        let output = project.call("grep", json!({ "pattern": pattern })).await;
        assert!(!output.contains("Invalid pattern"), "{pattern}: {output}");
    }
}

#[tokio::test]
async fn too_deeply_nested_braces_in_a_glob_pattern_are_rejected() {
    let project = Project::with_files(&[("abc", "")]);
    for (open, close) in [("{", "}"), ("{a,", "}"), ("{", "")] {
        let pattern = format!("{}a{}", open.repeat(300), close.repeat(300));
        let output = project.call("glob", json!({ "pattern": pattern })).await;
        assert!(output.contains("Invalid pattern"), "{output}");
    }
    let output = project.call("glob", json!({ "pattern": "{a,{b,c}}{b,{x,bc}}*" })).await;
    assert!(output.contains("abc"), "{output}");
}
