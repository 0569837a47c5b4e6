mod bounds;
mod definitions;

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    time::{Duration, SystemTime},
};

use expect_test::{Expect, expect};
use serde_json::json;
use shared::tool::Effect;

use crate::{Root, tests::project::Project};

#[test]
fn file_tools_have_their_documented_names_and_parameters() {
    let project = Project::new();
    let tools = super::tools(&project.root);
    let lines = tools.iter().map(|tool| {
        let definition = tool.definition();
        let schema = &definition.input_schema;
        assert_eq!(definition.effect, Effect::Read);
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema.get("$defs"), None, "models do not follow references");
        let parameters = schema["properties"].as_object().unwrap();
        let parameters = parameters.iter().map(|(name, schema)| match schema.get("default") {
            Some(default) => format!("{name}={default}"),
            None => name.clone(),
        });
        format!("{}({})\n", definition.qualified_name(), parameters.collect::<Vec<_>>().join(", "))
    });
    expect![[r#"
        file_tools.file_info(file_path)
        file_tools.find_definition(name, path=null)
        file_tools.glob(pattern, path=null)
        file_tools.grep(pattern, path=null, output_mode="files_with_matches", context_lines=0, case_insensitive=false)
        file_tools.tree(path=null, depth=2)
    "#]].assert_eq(&lines.collect::<String>());
}

/// Sets the modification times so that each file is newer than the file before it.
fn set_modification_times(project: &Project, paths: &[&str]) {
    for (index, path) in paths.iter().enumerate() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + index as u64);
        File::open(project.path(path)).unwrap().set_modified(time).unwrap();
    }
}

#[tokio::test]
async fn glob_finds_the_newest_first() {
    let files = ["src/a.py", "b.py", "src/deep/c.py", ".hidden/d.py", "e.txt", "node_modules/f.js"];
    let project = Project::with_files(&files.map(|path| (path, "x")));
    set_modification_times(&project, &files);
    project.write_file(".git/hook.py", "");
    project.write_file(".gitignore", "node_modules\n");
    project.create_symlink("src/a.py", "link.py");
    let glob = async |args, expected| project.check("glob", args, expected).await;
    glob(
        json!({ "pattern": "*.py" }),
        expect![[r"
            Found 5 file(s) matching '*.py':
              .hidden/d.py
              src/deep/c.py
              b.py
              link.py
              src/a.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "*.py", "path": "src" }),
        expect![[r"
            Found 2 file(s) matching '*.py':
              src/deep/c.py
              src/a.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "./*.py" }),
        expect![[r"
            Found 2 file(s) matching './*.py':
              b.py
              link.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "src/*.py" }),
        expect![[r"
            Found 1 file(s) matching 'src/*.py':
              src/a.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "src/**/*.py" }),
        expect![[r"
            Found 2 file(s) matching 'src/**/*.py':
              src/deep/c.py
              src/a.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "deep/*", "path": "src" }),
        expect![[r"
            Found 1 file(s) matching 'deep/*':
              src/deep/c.py"]],
    )
    .await;
    glob(
        json!({ "pattern": "**/*.{js,txt}" }),
        expect![[r"
            Found 2 file(s) matching '**/*.{js,txt}':
              node_modules/f.js
              e.txt"]],
    )
    .await;
    glob(
        json!({ "pattern": "[!a-d].*" }),
        expect![[r"
            Found 2 file(s) matching '[!a-d].*':
              node_modules/f.js
              e.txt"]],
    )
    .await;
    glob(
        json!({ "pattern": project.path("src/*.py") }),
        expect![[r"
            Found 1 file(s) matching 'FOLDER/p/src/*.py':
              src/a.py"]],
    )
    .await;
    glob(
        json!({ "pattern": ".git/*" }),
        expect![[r"
            Found 1 file(s) matching '.git/*':
              .git/hook.py"]],
    )
    .await;
    glob(json!({ "pattern": "*.rs" }), expect!["No files found matching pattern: *.rs"]).await;
    glob(json!({ "pattern": "none/*.py" }), expect!["No files found matching pattern: none/*.py"])
        .await;
    glob(
        json!({ "pattern": "[a" }),
        expect!["tool.failed: Invalid pattern '[a': unclosed character class; missing ']'"],
    )
    .await;
    glob(json!({ "pattern": "" }), expect!["tool.failed: Invalid pattern '': it is empty"]).await;
    glob(json!({ "pattern": "*", "path": "none" }), expect!["tool.failed: Path not found: none"])
        .await;
    glob(json!({ "pattern": "*", "path": "b.py" }), expect!["tool.failed: Not a folder: b.py"])
        .await;
}

#[tokio::test]
async fn grep_returns_files_lines_or_counts() {
    let project = Project::with_files(&[
        ("a.txt", "one\nTwo\nthree\nfour\nfive\nsix\nseven two\n"),
        ("b/crlf.txt", "two\r\nsecond two\r\n"),
        ("c.txt", "nothing\n"),
        (".hidden", "two"),
    ]);
    project.write_file("binary", b"two\0two\n");
    project.write_file(
        "utf16",
        "\u{feff}two\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>(),
    );
    let grep = async |args, expected| project.check("grep", args, expected).await;
    grep(
        json!({ "pattern": "two" }),
        expect![[r"
            Found 3 file(s) with matches:
              a.txt
              b/crlf.txt
              utf16"]],
    )
    .await;
    grep(
        json!({ "pattern": "two", "output_mode": "content" }),
        expect![[r"
            a.txt:7:seven two
            b/crlf.txt:1:two
            b/crlf.txt:2:second two
            utf16:1:two"]],
    )
    .await;
    grep(
        json!({ "pattern": "two$", "output_mode": "count", "case_insensitive": true }),
        expect![[r"
            a.txt:2
            b/crlf.txt:2
            utf16:1"]],
    )
    .await;
    let around = json!({
        "pattern": "one|four|seven", "output_mode": "content", "context_lines": 1, "path": "a.txt",
    });
    grep(
        around,
        expect![[r"
        a.txt:1:one
        a.txt-2-Two
        a.txt-3-three
        a.txt:4:four
        a.txt-5-five
        a.txt-6-six
        a.txt:7:seven two"]],
    )
    .await;
    grep(
        json!({ "pattern": "Two|second", "output_mode": "content", "context_lines": 1.0 }),
        expect![[r"
            a.txt-1-one
            a.txt:2:Two
            a.txt-3-three
            --
            b/crlf.txt-1-two
            b/crlf.txt:2:second two"]],
    )
    .await;
}

#[tokio::test]
async fn grep_searches_only_the_given_path() {
    let project = Project::with_files(&[("a.txt", "two"), ("b/c.txt", "two"), (".hidden", "two")]);
    let grep = async |args, expected| project.check("grep", args, expected).await;
    grep(
        json!({ "pattern": "two", "path": ".hidden" }),
        expect![[r"
            Found 1 file(s) with matches:
              .hidden"]],
    )
    .await;
    grep(
        json!({ "pattern": "two", "path": "b" }),
        expect![[r"
            Found 1 file(s) with matches:
              b/c.txt"]],
    )
    .await;
    grep(json!({ "pattern": "zwei" }), expect!["No matches found for pattern: zwei"]).await;
    grep(
        json!({ "pattern": "(" }),
        expect![[r"
            tool.failed: Invalid pattern '(': regex parse error:
                (?:()
                ^
            error: unclosed group"]],
    )
    .await;
    grep(
        json!({ "pattern": "(?=x)" }),
        expect![[r"
            tool.failed: Invalid pattern '(?=x)': regex parse error:
                (?:(?=x))
                   ^^^
            error: look-around, including look-ahead and look-behind, is not supported"]],
    )
    .await;
    grep(json!({ "pattern": "" }), expect!["tool.failed: Invalid pattern '': it is empty"]).await;
    grep(json!({ "pattern": "x", "path": "none" }), expect!["tool.failed: Path not found: none"])
        .await;
    grep(json!({ "pattern": "(((a{1,100}){1,100}){1,100})" }), expect!["tool.failed: Invalid \
                                                                        pattern \
                                                                        '(((a{1,100}){1,100}){1,100})': \
                                                                        it is too large: use fewer \
                                                                        repetitions, or search for \
                                                                        a part"]).await;
}

#[tokio::test]
async fn grep_skips_files_that_git_ignores() {
    let project = Project::with_files(&[
        (".gitignore", "*.log\n/build\n!keep.log\n"),
        ("a.log", "x"),
        ("keep.log", "x"),
        ("build/out.txt", "x"),
        ("src/build/out.txt", "x"),
        ("src/.gitignore", "/gen\n!b.log\n"),
        ("src/gen/c.txt", "x"),
        ("src/b.log", "x"),
        ("src/.ignore", "secret.txt\n!.env\n"),
        ("src/secret.txt", "x"),
        ("src/.env", "x"),
        ("src/deep/secret.txt", "x"),
        ("vendor/repo/.git/info/exclude", "local.txt\n"),
        ("vendor/repo/d.log", "x"),
        ("vendor/repo/local.txt", "x"),
    ]);
    let grep = async |args, expected| project.check("grep", args, expected).await;
    grep(
        json!({ "pattern": "x" }),
        expect![[r"
            Found 5 file(s) with matches:
              keep.log
              src/.env
              src/b.log
              src/build/out.txt
              vendor/repo/d.log"]],
    )
    .await;
    grep(json!({ "pattern": "x", "path": "src/deep" }), expect!["No matches found for pattern: x"])
        .await;
    grep(
        json!({ "pattern": "x", "path": "build" }),
        expect![[r"
            Found 1 file(s) with matches:
              build/out.txt"]],
    )
    .await;
    grep(
        json!({ "pattern": "x", "path": "a.log" }),
        expect![[r"
            Found 1 file(s) with matches:
              a.log"]],
    )
    .await;
}

#[tokio::test]
async fn glob_finds_symlinks_whose_targets_are_inside_the_root() {
    let project = Project::with_files(&[("src/a.py", "")]);
    project.create_symlink("src/a.py", "near.py");
    project.create_symlink(project.path("src/a.py"), "far.py");
    project.create_symlink("/etc/passwd", "out.py");
    let found = project.call("glob", json!({ "pattern": "*.py" })).await;
    let mut lines: Vec<_> = found.lines().collect();
    lines.sort_unstable();
    let expected = ["  far.py", "  near.py", "  src/a.py", "Found 3 file(s) matching '*.py':"];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn tree_counts_entries_below_its_depth() {
    let project = Project::new();
    for number in 0..250 {
        project.write_file(&format!("many/{number}.txt"), "");
    }
    let tree = project.call("tree", json!({})).await;
    assert!(tree.contains("    └── … 50 more\n\n1 folder(s), 250 file(s)"), "{tree}");
}

/// Regression: the output contained `2 left out by .gitignore` in a folder that had only Faber's
/// store.
#[tokio::test]
async fn tree_explains_why_entries_are_left_out() {
    let mut project = Project::with_files(&[("faber.db", ""), ("faber.db-wal", "")]);
    let own = ["faber.db", "faber.db-wal"].map(|name| project.path(name));
    project.root = Root::open(project.path("")).unwrap().with_protected(&own);
    let check = async |project: &Project, tool, args, expected| {
        project.check(tool, args, expected).await;
    };
    let tree = expect![[r"
        ./

        0 folder(s), 0 file(s) (left out: 2 Faber's own)"]];
    check(&project, "tree", json!({}), tree).await;
    for (path, text) in [
        (".gitignore", "*.log\n"),
        (".ignore", "*.tmp\n"),
        ("a.log", "fn one()"),
        ("b.log", ""),
        ("c.tmp", ""),
        (".git/config", ""),
    ] {
        project.write_file(path, text);
    }
    let tree = expect![[r"
        ./
        ├── .gitignore
        └── .ignore

        0 folder(s), 2 file(s) (left out: 2 by .gitignore, 1 by .ignore, 2 Faber's own)"]];
    check(&project, "tree", json!({}), tree).await;
}

#[tokio::test]
async fn tree_shows_folders_first() {
    let project = Project::with_files(&[
        ("b.txt", ""),
        ("src/deep/er/x.rs", ""),
        ("src/main.rs", ""),
        ("src/.env", ""),
        ("target/debug/x", ""),
        (".gitignore", "target\n"),
        (".git/config", ""),
    ]);
    project.create_symlink("b.txt", "link");
    fs::create_dir(project.path("empty")).unwrap();
    let tree = async |args, expected| project.check("tree", args, expected).await;
    tree(
        json!({}),
        expect![[r"
            ./
            ├── empty/
            ├── src/
            │   ├── deep/
            │   ├── .env
            │   └── main.rs
            ├── .gitignore
            ├── b.txt
            └── link -> b.txt

            3 folder(s), 5 file(s) (left out: 1 by .gitignore)"]],
    )
    .await;
    tree(
        json!({ "depth": 1 }),
        expect![[r"
            ./
            ├── empty/
            ├── src/
            ├── .gitignore
            ├── b.txt
            └── link -> b.txt

            2 folder(s), 3 file(s) (left out: 1 by .gitignore)"]],
    )
    .await;
    tree(
        json!({ "path": "src", "depth": 3.0 }),
        expect![[r"
            src/
            ├── deep/
            │   └── er/
            │       └── x.rs
            ├── .env
            └── main.rs

            2 folder(s), 3 file(s)"]],
    )
    .await;
    tree(
        json!({ "path": "empty" }),
        expect![[r"
            empty/

            0 folder(s), 0 file(s)"]],
    )
    .await;
    tree(json!({ "path": "b.txt" }), expect!["tool.failed: Not a folder: b.txt"]).await;
    tree(json!({ "path": "none" }), expect!["tool.failed: Path not found: none"]).await;
}

/// Returns the output of `file_info` without parts that differ between machines.
async fn describe_without_machine_details(project: &Project, path: &str) -> String {
    let text = project.call("file_info", json!({ "file_path": path })).await;
    let names = ["Path", "Type", "Size", "Modified", "Permissions", "Lines", "Content", "Entries"];
    let is_known =
        |line: &&str| names.iter().any(|name| line.starts_with(name)) || line.contains("tool.");
    text.lines().filter(is_known).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn file_info_names_the_type_of_an_entry() {
    let project = Project::with_files(&[("a.txt", "one\ntwo"), ("b/c", "")]);
    project.create_symlink("a.txt", "link");
    fs::set_permissions(project.path("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let check_info = async |path: &str, expected: Expect| {
        let text = describe_without_machine_details(&project, path).await;
        let lines = text.lines().filter(|line| path != "b" || !line.starts_with("Size"));
        expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    };
    for path in ["a.txt", "b"] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        File::open(project.path(path)).unwrap().set_modified(time).unwrap();
    }
    check_info(
        "a.txt",
        expect![[r"
            Path: a.txt
            Type: file
            Size: 7 bytes
            Modified: 2023-11-14T22:13:20Z
            Permissions: rw-r----- (640)
            Lines: 2"]],
    )
    .await;
    check_info(
        "link",
        expect![[r"
            Path: link
            Type: file (a symlink to a.txt)
            Size: 7 bytes
            Modified: 2023-11-14T22:13:20Z
            Permissions: rw-r----- (640)
            Lines: 2"]],
    )
    .await;
    check_info(
        "b",
        expect![[r"
            Path: b
            Type: folder
            Modified: 2023-11-14T22:13:20Z
            Permissions: rwxr-xr-x (755)
            Entries: 1"]],
    )
    .await;
}

#[tokio::test]
async fn file_info_counts_lines_of_text() {
    let project = Project::with_files(&[("big", &"x\n".repeat(1_000_000))]);
    project.write_file("binary", b"a\0b");
    project.create_fifo("fifo");
    for path in ["big", "binary"] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        File::open(project.path(path)).unwrap().set_modified(time).unwrap();
    }
    let check_info = async |path: &str, expected: Expect| {
        expected.assert_eq(&describe_without_machine_details(&project, path).await);
    };
    check_info(
        "big",
        expect![[r"
            Path: big
            Type: file
            Size: 2000000 bytes (1.9 MB)
            Modified: 2023-11-14T22:13:20Z
            Permissions: rw-r--r-- (644)
            Lines: 1000000"]],
    )
    .await;
    check_info(
        "binary",
        expect![[r"
            Path: binary
            Type: file
            Size: 3 bytes
            Modified: 2023-11-14T22:13:20Z
            Permissions: rw-r--r-- (644)
            Content: binary"]],
    )
    .await;
    check_info("none", expect!["tool.failed: File not found: none"]).await;
    let fifo = project.call("file_info", json!({ "file_path": "fifo" })).await;
    assert!(fifo.starts_with("Path: fifo\nType: FIFO\n"), "{fifo}");
}
