//! Faber's own files and programs, which tools must not change.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use mcp::oauth::Logins;
use toolsets::sources::SetConfig;

use super::{Config, DEFAULT_FILE, EncryptionConfig, TlsFiles};

/// Suffixes of the files and folders of a SQLite store.
const STORE_SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", WORKERS_SUFFIX];
const WORKERS_SUFFIX: &str = "-workers";

impl Config {
    /// Returns Faber's own files: the configuration file, the files that it names, the data folder,
    /// and the files of the store. Some of these files possibly do not exist.
    pub fn own_files(&self, base: &Path) -> Vec<PathBuf> {
        let mut files = vec![base.join(DEFAULT_FILE), to_absolute(&self.data)];
        files.extend(self.file.as_deref().map(to_absolute));
        files.extend(self.described_files.iter().map(|path| to_absolute(path)));
        let keys = self.encryption.value.iter().flat_map(EncryptionConfig::files);
        files.extend(keys.map(to_absolute));
        files.extend(self.client_secret_file().map(|path| to_absolute(&path)));
        files.extend(self.access.value.files().map(to_absolute));
        let tls = self.http_server.value.tls.iter().flat_map(TlsFiles::paths);
        files.extend(tls.map(to_absolute));
        files.extend(self.store_file.as_deref().map(to_absolute));
        files.extend(self.planner.value.key_files().into_iter().map(to_absolute));
        files.extend(self.embedding.value.key_file().map(to_absolute));
        let secrets = self.toolsets.value.iter().flat_map(SetConfig::secret_paths);
        files.extend(secrets.map(to_absolute));
        files.extend(self.toolkit.value.files.iter().map(|path| to_absolute(path)));
        // The API document of a toolset decides where calls go, and calls carry the toolset's
        // secrets.
        let documents = self.toolsets.value.iter().filter_map(SetConfig::document);
        files.extend(documents.map(|path| to_absolute(&path)));
        files.extend(STORE_SUFFIXES.iter().filter_map(|suffix| self.store_file_path(suffix)));
        files
    }

    fn client_secret_file(&self) -> Option<PathBuf> {
        let file = self.http_server.value.oidc.as_ref()?.secret_file()?;
        Some(self.base_folder().ok()?.join(file))
    }

    /// Returns the folders with Faber's own data. Some of these folders possibly do not exist.
    pub fn own_folders(&self) -> Vec<PathBuf> {
        [to_absolute(&self.data)].into_iter().chain(self.store_file_path(WORKERS_SUFFIX)).collect()
    }

    fn store_file_path(&self, suffix: &str) -> Option<PathBuf> {
        let store = self.store.value.strip_prefix("sqlite:")?;
        let file = to_absolute(Path::new(store.strip_prefix("//").unwrap_or(store)));
        let mut name = OsString::from(file);
        name.push(suffix);
        Some(name.into())
    }
}

fn to_absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Config {
    pub fn open_logins(&self) -> Logins {
        Logins::new(self.data.join("logins"))
    }

    pub fn own_programs(&self) -> Vec<PathBuf> {
        self.toolsets.value.iter().flat_map(SetConfig::programs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Environment, Flags},
        *,
    };

    #[test]
    fn the_configuration_and_the_store_are_protected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my.yaml");
        let text = "store: sqlite:./x.db
tools_files: [t.json]
toolkit_files: [k.yml]
encryption: { keys: [{ id: a, file: a.key }] }
access: { tokens: [{ name: a, token_file: a.token, role: admin }] }
server: { tls: { cert_file: a.pem, key_file: a.pem.key } }
planner: { provider: openai, model: m, api_key_file: planner.key }
embedding: { base_url: \"http://127.0.0.1:1/v1\", model: m, api_key_file: embedding.key }
toolsets:
  - { name: pets, source: { openapi: { document: ./docs/pets.yaml } } }
  - { name: near, source: { graphql: { url: \"https://example.com\", auth: { secret_file: near.key } } } }
  - { name: far, source: { openapi: { document: \"https://example.com/x.yaml\" } } }
";
        std::fs::write(&file, text).unwrap();
        std::fs::write(folder.path().join("k.yml"), "actions: []").unwrap();
        std::fs::write(folder.path().join("t.json"), r#"{"tools_list": []}"#).unwrap();
        let flags = Flags { config: Some(file), ..Flags::default() };
        let environment =
            Environment { home: Some(folder.path().join("home")), ..Environment::default() };
        let config = Config::load(&flags, &environment).unwrap();
        let own_files = config.own_files(&config.base_folder().unwrap());
        let own_names: Vec<_> = own_files
            .iter()
            .map(|path| path.components().collect::<PathBuf>())
            .filter_map(|path| Some(path.strip_prefix(folder.path()).ok()?.display().to_string()))
            .collect();
        let expected = [
            "faber.yaml",
            "home/.local/share/faber",
            "my.yaml",
            "t.json",
            "a.key",
            "a.token",
            "a.pem",
            "a.pem.key",
            "planner.key",
            "embedding.key",
            "near.key",
            "k.yml",
            "docs/pets.yaml",
            "x.db",
            "x.db-wal",
            "x.db-shm",
            "x.db-journal",
            "x.db-workers",
        ];
        assert_eq!(own_names, expected);
        let folders = config.own_folders();
        let names = folders.iter().filter_map(|path| path.file_name()?.to_str());
        assert_eq!(names.collect::<Vec<_>>(), ["faber", "x.db-workers"]);
    }

    #[test]
    fn programs_given_by_a_path_are_protected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("faber.yaml");
        let text = "toolsets:
  - { name: a, source: { tools: [{ name: s, run: { command: [./s.sh] } }] } }
  - { name: b, source: { tools: [{ name: sh, run: { command: [sh, ./t.sh] } }] } }
  - { name: c, source: { mcp: { command: bin/server } } }
";
        std::fs::write(&file, text).unwrap();
        let flags = Flags { config: Some(file), ..Flags::default() };
        let environment =
            Environment { home: Some(folder.path().join("home")), ..Environment::default() };
        let config = Config::load(&flags, &environment).unwrap();
        let programs = config.own_programs();
        let program_parts: Vec<PathBuf> =
            programs.iter().map(|path| path.components().collect()).collect();
        assert_eq!(program_parts, [folder.path().join("s.sh"), folder.path().join("bin/server")]);
    }
}
