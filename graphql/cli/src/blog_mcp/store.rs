use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CallError, tools::DocumentKind};

const LOCK_TRIES: u32 = 1_000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

pub(super) type Record = Map<String, Value>;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Data {
    #[serde(default)]
    authors: Vec<Record>,
    #[serde(default)]
    blogs: Vec<Record>,
    #[serde(default)]
    comments: Vec<Record>,
    #[serde(default)]
    pictures: Vec<Record>,
}

impl Data {
    pub(super) fn records(&self, kind: DocumentKind) -> &[Record] {
        match kind {
            DocumentKind::Author => &self.authors,
            DocumentKind::Blog => &self.blogs,
            DocumentKind::Comment => &self.comments,
            DocumentKind::Picture => &self.pictures,
        }
    }

    pub(super) fn records_mut(&mut self, kind: DocumentKind) -> &mut Vec<Record> {
        match kind {
            DocumentKind::Author => &mut self.authors,
            DocumentKind::Blog => &mut self.blogs,
            DocumentKind::Comment => &mut self.comments,
            DocumentKind::Picture => &mut self.pictures,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("`{}` cannot be used: {err}; name another file with `--file`", file.display())]
    Io { file: PathBuf, err: io::Error },
    #[error("`{}` is not a file of the blog server: {err}; move the file away, or name another \
             file with `--file`", file.display())]
    Content { file: PathBuf, err: serde_json::Error },
    #[error("another process has been writing `{}` for too long", .0.display())]
    Busy(PathBuf),
}

/// The file with the data. Each change replaces the whole file, so a reader never sees half of a
/// change.
#[derive(Debug)]
pub(super) struct Store {
    file: PathBuf,
}

impl Store {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Reads all data. A missing file counts as empty data.
    pub(super) fn read(&self) -> Result<Data, StoreError> {
        let bytes = match fs::read(&self.file) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Data::default()),
            Err(err) => return Err(self.io_error(err)),
        };
        serde_json::from_slice(&bytes)
            .map_err(|err| StoreError::Content { file: self.file.clone(), err })
    }

    /// Changes the data under the lock. The change is durable on return, and a rejected change
    /// writes nothing.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Data) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _lock = self.lock()?;
        let mut data = self.read()?;
        let result = change(&mut data)?;
        self.write(&data).map_err(|err| self.io_error(err))?;
        Ok(result)
    }

    fn lock(&self) -> Result<File, StoreError> {
        let open = || {
            fs::create_dir_all(self.folder())?;
            File::options().create(true).truncate(false).write(true).open(self.sibling_path("lock"))
        };
        let lock = open().map_err(|err| self.io_error(err))?;
        for _ in 0..LOCK_TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE),
                Err(TryLockError::Error(err)) => return Err(self.io_error(err)),
            }
        }
        Err(StoreError::Busy(self.file.clone()))
    }

    fn write(&self, data: &Data) -> io::Result<()> {
        let draft = self.sibling_path("new");
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(data)?)?;
        file.sync_all()?;
        fs::rename(&draft, &self.file)?;
        File::open(self.folder())?.sync_all()
    }

    fn folder(&self) -> &Path {
        match self.file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    fn sibling_path(&self, extension: &str) -> PathBuf {
        let mut name = self.file.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }

    fn io_error(&self, err: io::Error) -> StoreError {
        StoreError::Io { file: self.file.clone(), err }
    }
}
