use std::{
    io::ErrorKind,
    os::unix::fs::symlink,
    process::{Command, Output},
    thread,
};

use tempfile::TempDir;

use super::*;

struct TestFolder {
    folder: TempDir,
}

impl TestFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("root")
    }

    fn order(&self, hidden: &[&str], kept: &[&str], life: Lifetime) -> LaunchOrder {
        let paths = |names: &[&str]| names.iter().map(|name| self.root().join(name)).collect();
        let confinement = Confinement { write: vec![self.root()], ..Confinement::default() };
        let (hidden, kept) = (paths(hidden), paths(kept));
        LaunchOrder { confinement: Some(confinement), hidden, kept, life, caller: 0 }
    }

    /// Runs a shell in a thread with the mounts. Fails with the reason why they are not possible.
    fn run(&self, order: &LaunchOrder, script: &str) -> Result<String, String> {
        let run = || {
            let confinement = order.confinement.as_ref().unwrap();
            protect_files(order, confinement, &ReadablePaths::read_system(&order.hidden))
                .map_err(|err| err.to_string())?;
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).current_dir(self.root());
            let Output { stdout, stderr, .. } = shell.output().unwrap();
            Ok(format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap()
    }
}

/// Returns whether a thread of this process can create a mount namespace. A thread of `root` can
/// create one.
fn has_mount_namespace() -> bool {
    thread::scope(|scope| scope.spawn(|| mount_namespace::enter_namespace().is_ok()).join())
        .unwrap()
}

#[test]
fn a_protected_path_that_does_not_exist_is_an_error() {
    let folder = TestFolder::new();
    fs::write(folder.root().join("store.db"), "pages").unwrap();
    symlink("build/tool", folder.root().join("tool")).unwrap();
    for (hidden, kept, named) in [
        (&["store.db", "store.db-journal"][..], &[][..], "store.db-journal"),
        (&["faber.yaml"], &[], "faber.yaml"),
        (&[], &["deep/run.sh"], "deep/run.sh"),
        (&[], &["tool"], "build/tool"),
    ] {
        let err = folder.run(&folder.order(hidden, kept, Lifetime::Watched), "true").unwrap_err();
        let path = folder.root().join(named).display().to_string();
        assert!(err.starts_with(&format!("`{path}` is Faber's own, is where it may")), "{err}");
        assert!(err.contains("does not exist, so it cannot be hidden"), "{err}");
        let err =
            folder.run(&folder.order(hidden, kept, Lifetime::Background), "true").unwrap_err();
        assert!(err.contains("a command in the background may live"), "{err}");
    }
    let mut loose = folder.order(&["faber.yaml"], &[], Lifetime::Watched);
    loose.confinement.as_mut().unwrap().required = false;
    folder.run(&loose, "true").unwrap();
    // Missing files outside the command's folders are no reason to refuse the command, because it
    // cannot create them.
    let outside = folder.order(&["../faber.yaml"], &["/nowhere/run.sh"], Lifetime::Background);
    folder.run(&outside, "true").unwrap();
}

#[test]
fn hard_links_are_hidden_and_kept_like_their_files() {
    let folder = TestFolder::new();
    let root = folder.root();
    fs::create_dir(root.join("deep")).unwrap();
    for own in ["../faber.yaml", "run.sh"] {
        fs::write(root.join(own), "own\n").unwrap();
    }
    fs::hard_link(root.join("../faber.yaml"), root.join("deep/hard.yaml")).unwrap();
    fs::hard_link(root.join("run.sh"), root.join("deep/hard.sh")).unwrap();
    let order = folder.order(&["../faber.yaml"], &["run.sh"], Lifetime::Watched);
    let script = "chmod 600 deep/hard.yaml; rm -f deep/hard.yaml; mv deep other; cat deep/hard.sh; \
                  echo x >> deep/hard.sh; echo new > deep/new; wc -c < deep/hard.yaml";
    match folder.run(&order, script) {
        Err(err) => assert!(!has_mount_namespace(), "{err}"),
        Ok(output) => {
            assert!(output.starts_with("own\n0\n") && output.contains("Read-only"), "{output}");
            assert!(root.join("deep/new").exists());
        }
    }
    assert_eq!(fs::read_to_string(root.join("deep/hard.yaml")).unwrap(), "own\n");
    assert_eq!(fs::read_to_string(root.join("run.sh")).unwrap(), "own\n");
    let later = folder.run(&folder.order(&["../faber.yaml"], &[], Lifetime::Background), "true");
    assert!(later.unwrap_err().contains("hard.yaml` is Faber's own"));
}

#[test]
fn a_symlink_on_a_protected_path_stays_unchanged() {
    let folder = TestFolder::new();
    let root = folder.root();
    fs::create_dir_all(root.join("real/bin")).unwrap();
    for own in ["real/faber.yaml", "real/bin/tool"] {
        fs::write(root.join(own), "own\n").unwrap();
    }
    symlink("real", root.join("conf")).unwrap();
    symlink("conf/faber.yaml", root.join("faber.yaml")).unwrap();
    let order = folder.order(&["faber.yaml"], &["conf/bin/tool"], Lifetime::Watched);
    let script = "cat conf/bin/tool; rm -f faber.yaml conf; ln -sfn /tmp conf; mv conf other; \
                  echo x > faber.yaml; mv real other; echo new > conf/new; echo new > bin";
    match folder.run(&order, script) {
        Err(err) => assert!(!has_mount_namespace(), "{err}"),
        Ok(output) => assert!(output.starts_with("own\n") && output.contains("busy"), "{output}"),
    }
    for own in ["faber.yaml", "conf/bin/tool"] {
        assert_eq!(fs::read_to_string(root.join(own)).unwrap(), "own\n", "{own}");
    }
    assert_eq!(fs::read_link(root.join("conf")).unwrap(), Path::new("real"));
    assert_eq!(root.join("other").symlink_metadata().unwrap_err().kind(), ErrorKind::NotFound);
    if has_mount_namespace() {
        assert!(root.join("real/new").exists() && root.join("bin").exists());
    }
}
