//! Protection of `.git` against changes, because a hook or setting in `.git` can make the next Git
//! command run a program.

use std::path::{Component, Path, PathBuf};

use shared::tool::ToolError;

use super::{GitWrites, Root, display_path, os_path};

/// The folder of a repository. In a worktree or a submodule it is a file.
const GIT_FOLDER: &str = ".git";

impl Root {
    /// Rejects a path that leads into `.git`, by its names or through symlinks, unless changes
    /// there are allowed.
    pub(super) fn check_git_writes(&self, caller_path: &str, path: &Path) -> Result<(), ToolError> {
        if self.0.git_writes == GitWrites::Allowed {
            return Ok(());
        }
        if is_inside_git(path) || self.real_path(path).is_none_or(|real| is_inside_git(&real)) {
            return Err(git_error(caller_path));
        }
        Ok(())
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        let existing = path
            .ancestors()
            .find(|ancestor| self.dir().symlink_metadata(os_path(ancestor)).is_ok())?;
        let rest = path.strip_prefix(existing).ok()?;
        let real = match self.dir().canonicalize(os_path(existing)) {
            Ok(real) => real,
            // The symlink is broken or leads outside the root. The function that opens the file
            // reports this error.
            Err(_) => existing.to_owned(),
        };
        Some(real.join(rest))
    }
}

/// Returns whether a part of a path is `.git`. Ignores case, because some file systems do.
fn is_inside_git(path: &Path) -> bool {
    path.components().any(|part| match part {
        Component::Normal(name) => name.eq_ignore_ascii_case(GIT_FOLDER),
        _ => false,
    })
}

fn git_error(caller_path: &str) -> ToolError {
    let caller_path = display_path(Path::new(caller_path));
    let text = format!(
        "Refused: Path inside .git: {caller_path} (files there can run programs; `git: allowed` in the \
         toolset's `source` lets tools change them)"
    );
    ToolError::failed(text).without_retry()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::super::{GitWrites, Root};
    use crate::tests::project::Project;

    fn project_with_repository() -> Project {
        let project = Project::with_files(&[
            (".git/config", "[core]\n"),
            (".git/hooks/pre-commit.sample", "#!/bin/sh\n"),
            ("module/.git", "gitdir: ../.git/modules/module\n"),
            ("module/a.txt", "a\n"),
        ]);
        project.create_symlink(".git", "folder");
        project.create_symlink(".git/config", "file");
        project.create_symlink(project.path(".git"), "absolute");
        project
    }

    fn write_calls(path: &str) -> [(&'static str, Value); 3] {
        let edit = json!({ "file_path": path, "old_string": "core", "new_string": "alias" });
        [
            ("write_file", json!({ "file_path": path, "content": "x" })),
            ("append_file", json!({ "file_path": path, "content": "x" })),
            ("edit_file", edit),
        ]
    }

    #[tokio::test]
    async fn no_tool_writes_into_a_git_directory() {
        let project = project_with_repository();
        let git_paths = [
            ".git/hooks/pre-commit",
            ".git/config",
            ".git/new/folder/x",
            ".GIT/config",
            "folder/hooks/pre-commit",
            "folder/config",
            "absolute/config",
            "file",
            "module/.git",
            "module/../folder/config",
            "new/.git/config",
        ];
        for (path, (tool, args)) in
            git_paths.iter().flat_map(|path| write_calls(path).map(|call| (path, call)))
        {
            let output = project.call(tool, args).await;
            let is_absent = tool == "edit_file" && output.contains("File not found: ");
            assert!(
                is_absent || output.contains("Refused: Path inside .git: "),
                "{tool} {path}: {output}"
            );
        }
        assert_eq!(project.read_text(".git/config"), "[core]\n");
        assert_eq!(project.read_text("module/.git"), "gitdir: ../.git/modules/module\n");
        for path in [".git/hooks/pre-commit", ".git/new", ".GIT", "new", ".git/config.bak"] {
            assert!(!project.path(path).exists(), "{path}");
        }
        let args = json!({ "file_path": ".git/config", "content": "" });
        project.check("write_file", args, expect!["tool.failed: Refused: Path inside .git: .git/config (files there can run programs; `git: allowed` in the toolset's `source` lets tools change them)"]).await;
    }

    #[tokio::test]
    async fn names_that_resemble_git_can_be_written() {
        let project = project_with_repository();
        for path in [".gitignore", ".github/workflows/ci.yaml", "a.git/config", "module/a.txt"] {
            let args = json!({ "file_path": path, "content": "x" });
            let output = project.call("write_file", args).await;
            assert!(output.contains("Wrote 1 bytes"), "{path}: {output}");
        }
        let read = project.call("read_file", json!({ "file_path": "file" })).await;
        assert!(read.contains("[core]"), "{read}");
    }

    #[tokio::test]
    async fn a_root_that_allows_git_writes_can_change_git_files() {
        let mut project = project_with_repository();
        project.root = Root::open_with(project.path(""), GitWrites::Allowed).unwrap();
        for (tool, args) in write_calls("folder/config").into_iter().rev() {
            let output = project.call(tool, args).await;
            assert!(!output.contains("Refused"), "{output}");
        }
        assert_eq!(project.read_text(".git/config"), "x");
    }
}
