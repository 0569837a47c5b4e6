use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use expect_test::expect;
use serde_json::json;
use shared::limits;
use tokio::runtime::Runtime;

use crate::{Root, tests::project::Project};

#[test]
fn code_tools_have_their_documented_names_and_parameters() {
    let project = Project::new();
    let tools = super::tools(&project.root);
    let lines = tools.iter().map(|tool| {
        let definition = tool.definition();
        let schema = &definition.input_schema;
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(schema["additionalProperties"], false);
        format!(
            "{} {:?} {names:?} {}\n",
            definition.qualified_name(),
            definition.effect,
            schema["required"]
        )
    });
    expect![[r#"
        code_tools.append_file Once ["file_path", "content"] ["file_path","content"]
        code_tools.edit_file Once ["file_path", "old_string", "new_string", "replace_all"] ["file_path","old_string","new_string"]
        code_tools.read_file Read ["file_path", "offset", "limit"] ["file_path"]
        code_tools.write_file Idempotent ["file_path", "content"] ["file_path","content"]
    "#]]
    .assert_eq(&lines.collect::<String>());
}

#[tokio::test]
async fn read_file_shows_line_numbers() {
    let project = Project::with_files(&[("a.txt", "one\ntwo\r\n\nfour"), ("empty", "")]);
    let read = async |args, expected| project.check("read_file", args, expected).await;
    let whole = project.call("read_file", json!({ "file_path": "a.txt" })).await;
    assert_eq!(whole, "     1→one\n     2→two\n     3→\n     4→four");
    read(
        json!({ "file_path": "./x/../a.txt", "offset": 2, "limit": 2 }),
        expect![[r"
            Showing lines 2-3 of 4
                 2→two
                 3→"]],
    )
    .await;
    read(
        json!({ "file_path": "a.txt", "offset": 3.0, "limit": null }),
        expect![[r"
            Showing lines 3-4 of 4
                 3→
                 4→four"]],
    )
    .await;
    read(
        json!({ "file_path": "a.txt", "offset": 0, "limit": 0 }),
        expect![
            "tool.invalid_parameters: `limit` is 0: write the number of lines to read, or leave \
             out `limit` to read all"
        ],
    )
    .await;
    read(
        json!({ "file_path": "a.txt/" }),
        expect!["tool.failed: Not a file: a.txt/ (it ends in `/`)"],
    )
    .await;
    read(
        json!({ "file_path": "a.txt", "offset": 0, "limit": 1 }),
        expect![[r"
            Showing lines 1-1 of 4
                 1→one"]],
    )
    .await;
    read(
        json!({ "file_path": "a.txt", "offset": 5 }),
        expect!["tool.failed: No line 5 in a.txt: the file has 4"],
    )
    .await;
    read(json!({ "file_path": "empty" }), expect!["(the file is empty)"]).await;
    read(
        json!({ "file_path": "empty", "offset": 2 }),
        expect!["tool.failed: No line 2 in empty: the file has 0"],
    )
    .await;
    read(json!({ "file_path": "none.txt" }), expect!["tool.failed: File not found: none.txt"])
        .await;
    read(json!({ "file_path": "a.txt/x" }), expect!["tool.failed: File not found: a.txt/x"]).await;
    read(json!({ "file_path": "." }), expect!["tool.failed: Not a file: . (it is a folder)"]).await;
    read(json!({ "file_path": "" }), expect!["tool.failed: Not a file: . (it is a folder)"]).await;
    read(
        json!({ "file_path": "a\u{0}b" }),
        expect![[r"tool.failed: Cannot look at a\u{0}b: Invalid argument (os error 22)"]],
    )
    .await;
}

#[tokio::test]
async fn a_path_may_be_absolute_inside_the_root() {
    let project = Project::with_files(&[("a.txt", "one\n")]);
    let path = project.path("a.txt");
    project.check("read_file", json!({ "file_path": path }), expect!["     1→one"]).await;
    let (to, other) = (project.path(""), project.path("../other"));
    std::os::unix::fs::symlink(to, &other).unwrap();
    let root = crate::Root::open(&other).unwrap();
    let target_path = root.resolve_path(other.join("a.txt").to_str().unwrap()).unwrap();
    assert_eq!(target_path.path.to_str(), Some("a.txt"));
    assert!(root.resolve_path(path.to_str().unwrap()).unwrap().meta.is_some());
}

#[tokio::test]
async fn read_file_shows_invalid_utf8_with_a_note() {
    let project = Project::new();
    project.write_file("latin", b"caf\xe9\nok\n");
    project.write_file("zero", b"a\0b\n");
    project
        .check(
            "read_file",
            json!({ "file_path": "latin" }),
            expect![[r"
                     1→caf�
                     2→ok
                (the file is not entirely UTF-8 text: other bytes are shown as �)"]],
        )
        .await;
    project
        .check(
            "read_file",
            json!({ "file_path": "latin", "offset": 2 }),
            expect![[r"
                Showing lines 2-2 of 2
                     2→ok"]],
        )
        .await;
    let zero = project.call("read_file", json!({ "file_path": "zero" })).await;
    assert!(zero.starts_with("     1→a\0b\n(the file is not"), "{zero:?}");
}

#[tokio::test]
async fn a_huge_file_is_cut_and_its_rest_can_be_read() {
    let project = Project::new();
    let line = |number: usize| format!("line {number} {}\n", "x".repeat(80));
    project.write_file("big", (1..=20_000).map(line).collect::<String>());
    let first = project.call("read_file", json!({ "file_path": "big" })).await;
    assert!(first.len() < limits::OUTPUT_BYTES / 6);
    let (last, note) = first.rsplit_once('\n').unwrap();
    let last: usize =
        last.rsplit_once('→').unwrap().0.rsplit('\n').next().unwrap().trim().parse().unwrap();
    assert!(last > 1_000);
    assert_eq!(first.lines().next().unwrap(), format!("Showing lines 1-{last} of 20000"));
    assert_eq!(note, format!("(cut: continue with offset={})", last + 1));
    let next = project
        .call("read_file", json!({ "file_path": "big", "offset": last + 1, "limit": 1 }))
        .await;
    assert!(next.starts_with(&format!("Showing lines {0}-{0} of 20000\n", last + 1)), "{next}");

    project.write_file("wide", format!("{}é\nshort\n", "x".repeat(16 * 1024 - 1)));
    let wide = project.call("read_file", json!({ "file_path": "wide" })).await;
    let lines: Vec<_> = wide.lines().collect();
    assert!(lines[0].ends_with("xx … (line cut: 16386 bytes)"), "{}", &lines[0][16_300..]);
    assert_eq!(lines[1..], ["     2→short"]);

    let sparse = fs::File::create(project.path("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    project.check("read_file", json!({ "file_path": "sparse" }), expect!["tool.failed: File too large: sparse has 1099511627776 bytes (at most 268435456): use grep to find lines in it"]).await;
}

#[tokio::test]
async fn write_file_replaces_the_whole_file() {
    let project = Project::with_files(&[("a.txt", "old"), ("dir/x", "")]);
    let write = async |path: &str, content: &str, expected| {
        let args = json!({ "file_path": path, "content": content });
        project.check("write_file", args, expected).await;
    };
    write("a.txt", "new\nlines\n", expect!["Wrote 10 bytes (2 lines) to a.txt"]).await;
    write("deep/er/b.txt", "ü", expect!["Wrote 2 bytes (1 lines) to deep/er/b.txt (a new file)"])
        .await;
    write("deep/er/empty", "", expect!["Wrote 0 bytes (0 lines) to deep/er/empty (a new file)"])
        .await;
    write("dir", "x", expect!["tool.failed: Not a file: dir (it is a folder)"]).await;
    write(
        "dir/x/y",
        "x",
        expect!["tool.failed: Cannot make the folder of dir/x/y: File exists (os error 17)"],
    )
    .await;
    write("dir/new/", "x", expect!["tool.failed: Not a file: dir/new/ (it ends in `/`)"]).await;
    write(".", "x", expect!["tool.failed: Not a file: . (it is a folder)"]).await;
    assert_eq!(project.read_text("a.txt"), "new\nlines\n");
    assert_eq!(project.read_text("deep/er/b.txt"), "ü");
    assert!(!project.path("dir/new").exists());
    let names = fs::read_dir(project.path("")).unwrap().count();
    assert_eq!(names, 3, "no temporary file is left");
}

#[tokio::test]
async fn writing_keeps_permissions_and_symlinks() {
    let project =
        Project::with_files(&[("run.sh", "echo a\n"), ("real/a.txt", "a"), ("locked", "a")]);
    let mode = |path, mode| {
        fs::set_permissions(project.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("run.sh", 0o751);
    mode("locked", 0o444);
    let args = json!({ "file_path": "run.sh", "old_string": "a", "new_string": "b" });
    project
        .check(
            "edit_file",
            args,
            expect!["Replaced 1 occurrence(s) in run.sh (backup: run.sh.bak)"],
        )
        .await;
    for name in ["run.sh", "run.sh.bak"] {
        assert_eq!(fs::metadata(project.path(name)).unwrap().mode() & 0o7777, 0o751, "{name}");
    }
    let args = json!({ "file_path": "locked", "content": "b" });
    project
        .check("write_file", args, expect!["tool.failed: Cannot write locked: it is read-only"])
        .await;

    project.create_symlink("real/a.txt", "relative");
    project.create_symlink(project.path("real/a.txt"), "absolute");
    project.create_symlink("nothing", "dangling");
    for name in ["relative", "absolute"] {
        let args = json!({ "file_path": name, "content": name });
        expect!["Wrote 8 bytes (1 lines) to real/a.txt"]
            .assert_eq(&project.call("write_file", args).await);
        assert!(fs::symlink_metadata(project.path(name)).unwrap().is_symlink());
        assert_eq!(project.read_text("real/a.txt"), name);
    }
    let args = json!({ "file_path": "dangling", "content": "x" });
    project
        .check("write_file", args, expect!["tool.failed: dangling is a symlink to a missing file"])
        .await;
}

#[tokio::test]
async fn an_edit_whose_text_does_not_match_once_changes_nothing() {
    let project = Project::with_files(&[("a.txt", "one two one\n"), ("crlf.txt", "a\r\nb\r\n")]);
    project.write_file("latin", b"caf\xe9");
    let edit = async |path: &str, (old, new): (&str, &str), all: bool, expected| {
        let args = json!({
            "file_path": path, "old_string": old, "new_string": new, "replace_all": all,
        });
        project.check("edit_file", args, expected).await;
    };
    edit("a.txt", ("one", "1"), false, expect!["tool.failed: String appears 2 times in a.txt: include more of the text around it, or use replace_all=True"]).await;
    edit("a.txt", ("three", "3"), false, expect!["tool.failed: String not found in a.txt: it must be exactly as in the file, with its indentation and without line numbers"]).await;
    edit(
        "a.txt",
        ("  two  ", "2"),
        true,
        expect!["tool.failed: String not found in a.txt: the white space around it is different"],
    )
    .await;
    edit(
        "a.txt",
        ("two\r\n", "2"),
        false,
        expect!["tool.failed: String not found in a.txt: the white space around it is different"],
    )
    .await;
    edit(
        "a.txt",
        ("one\r\n", "2"),
        false,
        expect![[
            r"tool.failed: String not found in a.txt: the file's lines end in \n, not in \r\n"
        ]],
    )
    .await;
    edit(
        "a.txt",
        ("", "3"),
        false,
        expect!["tool.failed: old_string is empty: use write_file to create a file"],
    )
    .await;
    edit(
        "a.txt",
        ("one", "one"),
        false,
        expect!["tool.failed: old_string and new_string are the same"],
    )
    .await;
    edit("b.txt", ("one", "1"), false, expect!["tool.failed: File not found: b.txt"]).await;
    edit(
        "latin",
        ("c", "k"),
        false,
        expect!["tool.failed: Not UTF-8 text: latin: only text files can be edited"],
    )
    .await;
    edit(
        "crlf.txt",
        ("a\nb", "c"),
        false,
        expect![[r"tool.failed: String not found in crlf.txt: the file's lines end in \r\n"]],
    )
    .await;
    assert!(!project.path("a.txt.bak").exists(), "a failed edit changes nothing");
}

#[tokio::test]
async fn an_edit_saves_the_earlier_content_in_a_backup() {
    let project = Project::with_files(&[("a.txt", "one two one\n")]);
    let edit = async |path: &str, (old, new): (&str, &str), all: bool, expected| {
        let args = json!({
            "file_path": path, "old_string": old, "new_string": new, "replace_all": all,
        });
        project.check("edit_file", args, expected).await;
    };
    edit(
        "a.txt",
        ("two", "2"),
        false,
        expect!["Replaced 1 occurrence(s) in a.txt (backup: a.txt.bak)"],
    )
    .await;
    edit(
        "a.txt",
        ("one", "1"),
        true,
        expect!["Replaced 2 occurrence(s) in a.txt (backup: a.txt.bak)"],
    )
    .await;
    assert_eq!(project.read_text("a.txt"), "1 2 1\n");
    assert_eq!(project.read_text("a.txt.bak"), "one 2 one\n");
}

#[tokio::test]
async fn an_edit_whose_result_is_too_large_is_rejected() {
    let project = Project::with_files(&[("a.txt", &"a".repeat(100_000))]);
    let args = json!({
        "file_path": "a.txt", "old_string": "a", "new_string": "b".repeat(100_000),
        "replace_all": true,
    });
    project
        .check(
            "edit_file",
            args,
            expect!["tool.failed: a.txt would become larger than 16777216 bytes"],
        )
        .await;
}

#[tokio::test]
async fn append_adds_content_at_the_end_of_a_file() {
    let project = Project::with_files(&[("a.txt", "one\n")]);
    for (path, expected) in [
        ("a.txt", expect!["Appended 4 bytes (1 lines) to a.txt"]),
        ("new/b.txt", expect!["Appended 4 bytes (1 lines) to new/b.txt (a new file)"]),
    ] {
        project
            .check("append_file", json!({ "file_path": path, "content": "two\n" }), expected)
            .await;
    }
    assert_eq!(project.read_text("a.txt"), "one\ntwo\n");
    assert_eq!(project.read_text("new/b.txt"), "two\n");
}

#[test]
fn readers_see_whole_versions() {
    let project = Project::with_files(&[("a.txt", &"a".repeat(100_000))]);
    let write = |letter: &str| {
        for _ in 0..50 {
            let target_path = project.root.resolve_path("a.txt").unwrap();
            // Nothing is written if another writer has replaced the file first.
            let _ = project
                .root
                .open_target(&target_path)
                .unwrap()
                .replace_content(letter.repeat(100_000).as_bytes());
        }
    };
    thread::scope(|scope| {
        let writers = [scope.spawn(|| write("a")), scope.spawn(|| write("b"))];
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            let text = project.read_text("a.txt");
            assert_eq!(text.len(), 100_000);
            assert_eq!(text, text[..1].repeat(100_000));
        }
    });
}

#[tokio::test]
async fn parallel_edits_are_all_applied() {
    let tokens: Vec<_> = (0..20).map(|number| format!("<{number}>")).collect();
    let project = Project::with_files(&[("a.txt", &tokens.join(" "))]);
    let edits = tokens.iter().map(|token| {
        let args = json!({ "file_path": "a.txt", "old_string": token, "new_string": "x" });
        project.try_call("edit_file", args)
    });
    futures::future::try_join_all(edits).await.unwrap();
    assert_eq!(project.read_text("a.txt"), vec!["x"; 20].join(" "));
}

#[test]
fn a_file_that_another_program_changed_is_not_overwritten() {
    let project = Project::with_files(&[("a.txt", "one")]);
    let target = project.root.open_target(&project.root.resolve_path("a.txt").unwrap()).unwrap();
    project.write_file("a.txt", "theirs");
    let error = target.replace_content(b"ours").unwrap_err();
    expect!["tool.failed: another program changed a.txt after it was read: read it again"]
        .assert_eq(&error.to_string());
    assert_eq!(project.read_text("a.txt"), "theirs");
}

#[tokio::test]
async fn protected_files_are_neither_read_nor_changed() {
    let mut project =
        Project::with_files(&[("faber.yaml", "own"), ("data/x.db", "own"), ("a.txt", "free own")]);
    let own = ["faber.yaml", "data", "data/x.db-wal", "new.db"].map(|name| project.path(name));
    project.root = Root::open(project.path("")).unwrap().with_protected(&own);
    project.create_symlink("faber.yaml", "link");
    project.create_symlink("data", "folder");
    project.create_symlink(project.path("data/x.db"), "absolute");
    fs::hard_link(project.path("faber.yaml"), project.path("twin")).unwrap();
    fs::hard_link(project.path("data/x.db"), project.path("inner")).unwrap();
    for path in [
        "faber.yaml",
        "./data/../faber.yaml",
        "link",
        "twin",
        "inner",
        "data/x.db",
        "data/x.db-wal",
        "data/more/y",
        "folder/x.db",
        "folder/z",
        "absolute",
        "new.db",
    ] {
        for (tool, args) in [
            ("write_file", json!({ "file_path": path, "content": "x" })),
            ("append_file", json!({ "file_path": path, "content": "x" })),
            ("edit_file", json!({ "file_path": path, "old_string": "own", "new_string": "x" })),
            ("read_file", json!({ "file_path": path })),
            ("file_info", json!({ "file_path": path })),
            ("grep", json!({ "path": path, "pattern": "own" })),
        ] {
            let output = project.call(tool, args).await;
            assert!(output.contains("Refused: Path is Faber's own: "), "{tool} {path}: {output}");
        }
    }
    assert_eq!(
        (project.read_text("faber.yaml"), project.read_text("data/x.db")),
        ("own".into(), "own".into())
    );
    assert!(!project.path("new.db").exists() && !project.path("data/more").exists());
    let found = project.call("grep", json!({ "pattern": "own" })).await;
    assert!(found.starts_with("Found 1 file(s) with matches:\n  a.txt"), "{found}");
    let listed = project.call("glob", json!({ "pattern": "**/*" })).await;
    assert!(!listed.contains("x.db"), "{listed}");
    let written = project.call("write_file", json!({ "file_path": "b", "content": "x" })).await;
    assert!(written.contains("Wrote"), "{written}");
}

/// SQLite loses its locks on a file when the same process closes the file, so the tool must not
/// open such a file.
#[tokio::test]
async fn protected_files_are_not_opened_through_a_symlink_to_a_folder() {
    let mut project = Project::with_files(&[
        ("faber.yaml", "own"),
        ("data/x.db", "own"),
        ("src/a.txt", "free own"),
        ("src/deep/b.rs", "fn own() {}"),
    ]);
    let own = ["faber.yaml", "data"].map(|name| project.path(name));
    project.root = Root::open(project.path("")).unwrap().with_protected(&own);
    project.create_symlink(".", "link");
    project.create_symlink("src", "source");
    let calls = [
        ("grep", json!({ "path": "link", "pattern": "own" })),
        ("grep", json!({ "path": "link/link", "pattern": "own" })),
        ("glob", json!({ "path": "link", "pattern": "**/*" })),
        ("glob", json!({ "pattern": "link/data/*" })),
        ("glob", json!({ "pattern": "link/*" })),
        ("tree", json!({ "path": "link", "depth": 3 })),
        ("find_definition", json!({ "path": "link", "name": "own" })),
    ];
    for (tool, args) in calls {
        let output = project.call(tool, args).await;
        assert!(!output.contains("faber.yaml") && !output.contains("x.db"), "{tool}: {output}");
    }
    project
        .check(
            "grep",
            json!({ "path": "source", "pattern": "own" }),
            expect![[r"
                Found 2 file(s) with matches:
                  source/a.txt
                  source/deep/b.rs"]],
        )
        .await;
    let args = json!({ "pattern": "source/**/*.rs" });
    project
        .check(
            "glob",
            args,
            expect![[r"
                Found 1 file(s) matching 'source/**/*.rs':
                  source/deep/b.rs"]],
        )
        .await;
    let args = json!({ "path": "source", "name": "own" });
    let found = project.call("find_definition", args).await;
    assert!(found.contains("source/deep/b.rs:1: fn own() {}"), "{found}");
    let drawn = project.call("tree", json!({ "path": "source" })).await;
    assert!(drawn.starts_with("source/\n├── deep/"), "{drawn}");
}

/// Files are swapped for symlinks to protected files while tools read and append to them.
#[test]
fn swapping_symlinks_during_a_call_reaches_no_protected_file() {
    let mut project =
        Project::with_files(&[("data/own", "hush"), ("own", "hush"), ("real/own", "free")]);
    project.root = Root::open(project.path(""))
        .unwrap()
        .with_protected(&["data", "own"].map(|name| project.path(name)));
    project.write_file("file", "free");
    project.create_symlink("own", "file.link");
    project.create_symlink("data", "real.link");
    let done = AtomicBool::new(false);
    let swap = || {
        while !done.load(Ordering::Relaxed) {
            for (from, position) in
                [("file", "door"), ("file.link", "door"), ("real", "way"), ("real.link", "way")]
            {
                fs::rename(project.path(from), project.path(position)).unwrap();
                fs::rename(project.path(position), project.path(from)).unwrap();
            }
        }
    };
    let runtime = Runtime::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(swap);
        for round in 0..6_000 {
            let path = if round % 2 == 0 { "door" } else { "way/own" };
            let text = runtime.block_on(project.call("read_file", json!({ "file_path": path })));
            assert!(!text.contains("hush"), "{text}");
            // Skips a missing file, because creating it would stop the swapping thread.
            let target_path = project
                .root
                .resolve_path(path)
                .ok()
                .filter(|target_path| target_path.meta.is_some());
            if let Some(target) =
                target_path.and_then(|target_path| project.root.open_target(&target_path).ok())
                && target.exists()
                && path != "door"
            {
                let _ = target.append(b"x");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        (project.read_text("data/own"), project.read_text("own")),
        ("hush".into(), "hush".into())
    );
}
