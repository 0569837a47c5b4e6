use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use expect_test::Expect;
use serde_json::Value;
use shared::tool::ToolError;
use toolbox::{ReadyTool, Tool, ToolContext};

use crate::{Root, code, file};

/// A temporary folder. The root is its subfolder `p`, so tests can also use paths outside the root.
pub(crate) struct Project {
    folder: tempfile::TempDir,
    pub(crate) root: Root,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    /// Uses a file system in memory if the machine has one, for tests with very many files.
    pub(crate) fn in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::in_folder(folder.unwrap())
    }

    fn in_folder(folder: tempfile::TempDir) -> Self {
        fs::create_dir(folder.path().join("p")).unwrap();
        let root = Root::open(folder.path().join("p")).unwrap();
        Self { folder, root }
    }

    pub(crate) fn with_files(files: &[(&str, &str)]) -> Self {
        let project = Self::new();
        for (path, content) in files {
            project.write_file(path, content);
        }
        project
    }

    /// Returns an absolute path. `../x` is outside the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        match path.strip_prefix("../") {
            Some(path) => self.folder.path().join(path),
            None => self.folder.path().join("p").join(path),
        }
    }

    pub(crate) fn write_file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read_text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn create_symlink(&self, to: impl AsRef<Path>, link: &str) {
        symlink(to, self.path(link)).unwrap();
    }

    pub(crate) fn create_fifo(&self, path: &str) {
        assert!(Command::new("mkfifo").arg(self.path(path)).status().unwrap().success());
    }

    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        [code::tools(&self.root), file::tools(&self.root)].concat()
    }

    /// Checks the parameters against the schema, and then calls the tool.
    pub(crate) async fn try_call(&self, name: &str, args: Value) -> Result<String, ToolError> {
        self.call_in(name, args, ToolContext::detached()).await
    }

    pub(crate) async fn call_in(
        &self,
        name: &str,
        args: Value,
        cx: ToolContext,
    ) -> Result<String, ToolError> {
        let tools = self.tools();
        let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        let ready = ReadyTool::new(Arc::clone(tool));
        assert_eq!(ready.complaint(&args), None, "{name} {args}");
        let output = tool.call(Arc::new(args), cx).await?;
        Ok(output.as_str().expect("outputs are text").to_owned())
    }

    pub(crate) async fn call(&self, name: &str, args: Value) -> String {
        let result = self.try_call(name, args).await;
        let text = result.unwrap_or_else(|err| err.to_string());
        text.replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }

    pub(crate) async fn check(&self, name: &str, args: Value, expected: Expect) {
        expected.assert_eq(&self.call(name, args).await);
    }
}
