use std::{
    fs,
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use expect_test::expect;
use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::ToolError;
use tokio::{runtime::Runtime, time};
use toolbox::ToolContext;

use super::{Queue, Root, display_path};
use crate::tests::project::Project;

fn calls_of_path_tools(path: &str) -> Vec<(&'static str, Value)> {
    let edit = json!({ "file_path": path, "old_string": "secret", "new_string": "x" });
    vec![
        ("append_file", json!({ "file_path": path, "content": "x" })),
        ("edit_file", edit),
        ("read_file", json!({ "file_path": path })),
        ("write_file", json!({ "file_path": path, "content": "x" })),
        ("file_info", json!({ "file_path": path })),
        ("find_definition", json!({ "name": "secret", "path": path })),
        ("glob", json!({ "pattern": "*", "path": path })),
        ("grep", json!({ "pattern": "secret", "path": path })),
        ("tree", json!({ "path": path })),
    ]
}

fn project_with_escaping_symlinks() -> Project {
    let project = Project::with_files(&[("dir/a.txt", "inside\n")]);
    project.write_file("../out/secret.txt", "secret\n");
    project.write_file("../out/secret.py", "def secret(): pass\n");
    project.create_symlink("../out/secret.txt", "relative");
    project.create_symlink(project.path("../out/secret.txt"), "absolute");
    project.create_symlink("../out", "folder");
    project.create_symlink("../../out/none.txt", "dir/none");
    project.create_symlink("relative", "twice");
    project
}

#[tokio::test]
async fn no_path_leads_outside_the_root() {
    let project = project_with_escaping_symlinks();
    let outside = project.path("../out/secret.txt").to_str().unwrap().to_owned();
    let outside_paths = [
        "..",
        "../out/secret.txt",
        "dir/../../out/secret.txt",
        "/etc/passwd",
        "/",
        &outside,
        "relative",
        "absolute",
        "twice",
        "folder",
        "folder/secret.txt",
        "folder/new.txt",
        "./folder/../../out/secret.txt",
        "dir/none",
    ];
    for path in outside_paths {
        for (tool, args) in calls_of_path_tools(path) {
            let error = project.try_call(tool, args).await.expect_err(path);
            let expected = format!("tool.failed: Refused: Path outside project root: {path}");
            assert_eq!(error.to_string(), expected, "{tool}");
            assert!(!error.retryable);
        }
    }
    for pattern in ["../*", "**/../../*", "/etc/*", "folder/../../out/*"] {
        let error = project.try_call("glob", json!({ "pattern": pattern })).await.unwrap_err();
        assert!(error.message.starts_with("Refused: Path outside"), "{pattern}: {error}");
    }
    assert_eq!(project.read_text("../out/secret.txt"), "secret\n");
    assert_eq!(fs::read_dir(project.path("../out")).unwrap().count(), 2);
}

#[tokio::test]
async fn searches_do_not_follow_links_outside_the_root() {
    let project = project_with_escaping_symlinks();
    let check = async |tool, args, expected| project.check(tool, args, expected).await;
    check(
        "grep",
        json!({ "pattern": "secret|inside" }),
        expect![[r"
            Found 1 file(s) with matches:
              dir/a.txt"]],
    )
    .await;
    check(
        "glob",
        json!({ "pattern": "**" }),
        expect![[r"
            Found 1 file(s) matching '**':
              dir/a.txt"]],
    )
    .await;
    check(
        "glob",
        json!({ "pattern": "folder/*" }),
        expect!["No files found matching pattern: folder/*"],
    )
    .await;
    check(
        "find_definition",
        json!({ "name": "secret" }),
        expect!["No definitions found for: secret"],
    )
    .await;
    check(
        "tree",
        json!({}),
        expect![[r"
            ./
            ├── dir/
            │   ├── a.txt
            │   └── none -> ../../out/none.txt
            ├── absolute -> FOLDER/out/secret.txt
            ├── folder -> ../out
            ├── relative -> ../out/secret.txt
            └── twice -> relative

            1 folder(s), 6 file(s)"]],
    )
    .await;
}

/// A folder is swapped for a symlink that leads outside while tools read and write files in it.
#[test]
fn swapping_symlinks_during_a_call_leads_to_no_file_outside() {
    let project = Project::with_files(&[("real/secret", "inside")]);
    project.write_file("../out/secret", "outside");
    project.create_symlink("../out", "link");
    let done = AtomicBool::new(false);
    let swap = || {
        while !done.load(Ordering::Relaxed) {
            for name in ["real", "link"] {
                fs::rename(project.path(name), project.path("door")).unwrap();
                fs::rename(project.path("door"), project.path(name)).unwrap();
            }
        }
    };
    let runtime = Runtime::new().unwrap();
    let (mut read, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(swap);
        let mut round = 0;
        while round < 1_000 || (round < 100_000 && (read == 0 || refused == 0)) {
            round += 1;
            let call = project.call("read_file", json!({ "file_path": "door/secret" }));
            let text = runtime.block_on(call);
            assert!(!text.contains("outside") || text.contains("Refused"), "{text}");
            read += usize::from(text.contains("inside"));
            refused += usize::from(text.contains("Refused"));
            if round % 30 == 0 {
                let args = json!({
                    "file_path": "door/secret", "old_string": "inside", "new_string": "inside.",
                });
                let _ = runtime.block_on(project.call("edit_file", args));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(project.read_text("../out/secret"), "outside");
    assert_eq!(fs::read_dir(project.path("../out")).unwrap().count(), 1);
    assert!(read > 0 && refused > 0, "the race was none: {read} read, {refused} refused");
}

#[tokio::test]
async fn reading_a_pipe_socket_or_device_fails_at_once() {
    let project = Project::with_files(&[("a.txt", "needle")]);
    project.create_fifo("fifo");
    project.create_fifo(".gitignore");
    let _listener = UnixListener::bind(project.path("socket")).unwrap();
    project.create_symlink("/dev/zero", "zero");
    let check = async |tool, args, expected| {
        let call = project.check(tool, args, expected);
        time::timeout(Duration::from_secs(20), call).await.expect("it blocks");
    };
    check(
        "read_file",
        json!({ "file_path": "fifo" }),
        expect!["tool.failed: Not a file: fifo (it is a FIFO)"],
    )
    .await;
    check(
        "read_file",
        json!({ "file_path": "socket" }),
        expect!["tool.failed: Not a file: socket (it is a socket)"],
    )
    .await;
    check(
        "read_file",
        json!({ "file_path": "zero" }),
        expect!["tool.failed: Refused: Path outside project root: zero"],
    )
    .await;
    check(
        "write_file",
        json!({ "file_path": "fifo", "content": "x" }),
        expect!["tool.failed: Not a file: fifo (it is a FIFO)"],
    )
    .await;
    check(
        "append_file",
        json!({ "file_path": "fifo", "content": "x" }),
        expect!["tool.failed: Not a file: fifo (it is a FIFO)"],
    )
    .await;
    let edit = json!({ "file_path": "fifo", "old_string": "a", "new_string": "b" });
    check("edit_file", edit, expect!["tool.failed: Not a file: fifo (it is a FIFO)"]).await;
    let error = project.root.open_file(Path::new("fifo")).unwrap_err();
    assert_eq!(error.to_string(), "it is a FIFO");
}

#[tokio::test]
async fn searches_skip_pipes_sockets_and_devices() {
    let project = Project::with_files(&[("a.txt", "needle")]);
    project.create_fifo("fifo");
    project.create_fifo(".gitignore");
    project.create_symlink("/dev/zero", "zero");
    let _listener = UnixListener::bind(project.path("socket")).unwrap();
    let check = async |tool, args, expected| {
        let call = project.check(tool, args, expected);
        time::timeout(Duration::from_secs(20), call).await.expect("it blocks");
    };
    check(
        "grep",
        json!({ "pattern": "needle" }),
        expect![[r"
            Found 1 file(s) with matches:
              a.txt"]],
    )
    .await;
    check(
        "grep",
        json!({ "pattern": "needle", "path": "fifo" }),
        expect!["tool.failed: Not a file: fifo (it is a FIFO)"],
    )
    .await;
    check(
        "glob",
        json!({ "pattern": "*" }),
        expect![[r"
            Found 1 file(s) matching '*':
              a.txt"]],
    )
    .await;
    check(
        "tree",
        json!({}),
        expect![[r"
            ./
            ├── .gitignore
            ├── a.txt
            ├── fifo
            ├── socket
            └── zero -> /dev/zero

            0 folder(s), 5 file(s)"]],
    )
    .await;
}

#[test]
fn a_root_must_be_a_folder() {
    let project = Project::with_files(&[("a.txt", "")]);
    let error = |path| Root::open(project.path(path)).unwrap_err().to_string();
    let path = |text: String| text.replace(project.path("").to_str().unwrap(), "P/");
    expect![
        "cannot open the project root `P/none`: No such file or directory (os error 2): create the \
         folder, or name another one"
    ]
    .assert_eq(&path(error("none")));
    expect![
        "cannot open the project root `P/a.txt`: Not a directory (os error 20): create the folder, \
         or name another one"
    ]
    .assert_eq(&path(error("a.txt")));
}

#[test]
fn a_name_with_control_characters_is_shown_on_one_line() {
    let table = [
        ("", "."),
        ("a b/ü", "a b/ü"),
        ("a\nFound 3 file(s)\u{1b}[31m", "a\\nFound 3 file(s)\\u{1b}[31m"),
    ];
    for (path, expected) in table {
        assert_eq!(display_path(Path::new(path)), expected);
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_dropped_stops() {
    let project = Project::with_files(&[("a.txt", "old")]);
    let cx = ToolContext::detached();
    cx.cancel.cancel();
    let args = json!({ "file_path": "a.txt", "content": "new" });
    let error = project.call_in("write_file", args, cx).await.unwrap_err();
    expect!["tool.cancelled: the work on files was interrupted"].assert_eq(&error.to_string());
    assert_eq!(project.read_text("a.txt"), "old");

    let (start_sender, begins) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let cx = ToolContext::detached();
    let mut work = Box::pin(project.root.run_queued(Queue::Search, &cx, move |_, stop| {
        start_sender.send(()).unwrap();
        while stop.stop_reason().is_none() {
            thread::yield_now();
        }
        ended.send(stop.stop_reason()).unwrap();
        Ok::<_, ToolError>(())
    }));
    assert!((&mut work).now_or_never().is_none());
    begins.recv().unwrap();
    drop(work);
    assert_eq!(
        ends.recv_timeout(Duration::from_secs(20)).unwrap(),
        Some(super::StopReason::Cancelled)
    );
}

#[tokio::test]
async fn parallel_searches_do_not_delay_file_tools() {
    let project = Project::with_files(&[("a.txt", "text")]);
    let cx = ToolContext::detached();
    let (end, ends) = mpsc::channel::<()>();
    let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
    let mut searches: Vec<_> = (0..5)
        .map(|number| {
            let ends = std::sync::Arc::clone(&ends);
            Box::pin(project.root.run_queued(Queue::Search, &cx, move |_, _| {
                let _ = ends.lock().unwrap().recv();
                Ok::<_, ToolError>(number)
            }))
        })
        .collect();
    for search in &mut searches {
        assert!(search.now_or_never().is_none());
    }
    assert_eq!(project.root.queue_permits(Queue::Search).available_permits(), 0);
    project.check("read_file", json!({ "file_path": "a.txt" }), expect!["     1→text"]).await;
    drop(end);
    let all = futures::future::try_join_all(searches).await.unwrap();
    assert_eq!(all, [0, 1, 2, 3, 4]);
}
