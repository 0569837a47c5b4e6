//! Ids of executions in a temporary file, so that any number of them needs no memory.
//!
//! Stores list executions from the newest to the oldest, and a backup reads them in the opposite
//! order.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use shared::{id::ExecutionId, store::ExecutionHead};

/// Bytes of a row: an id, which has 35 bytes at most, spaces that fill it up, two flags and a line
/// break.
const ROW_LEN: usize = 40;
const ID_LEN: usize = ROW_LEN - 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpooledExecution {
    pub(crate) id: ExecutionId,
    pub(crate) is_child: bool,
    /// The execution is finished, and no worker needs to work on it again.
    pub(crate) is_over: bool,
}

impl From<&ExecutionHead> for SpooledExecution {
    fn from(head: &ExecutionHead) -> Self {
        Self {
            id: head.execution,
            is_child: head.parent.is_some(),
            is_over: head.state.is_finished() && head.owner.is_none(),
        }
    }
}

pub(crate) struct Spool {
    out: BufWriter<File>,
    len: usize,
}

/// The rows of a spool, from the last to the first.
pub(crate) struct SpoolReader {
    file: File,
    rows_left: usize,
}

impl Spool {
    /// Creates a file at `path` and removes its name immediately, so that nothing is left behind if
    /// the process dies.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path)?;
        fs::remove_file(path)?;
        Ok(Self { out: BufWriter::new(file), len: 0 })
    }

    pub(crate) fn push(&mut self, row: SpooledExecution) -> io::Result<()> {
        let flag = |is_set: bool| if is_set { 'x' } else { '-' };
        let SpooledExecution { id, is_child, is_over } = row;
        let (id, is_child, is_over) = (id.to_string(), flag(is_child), flag(is_over));
        writeln!(self.out, "{id:<ID_LEN$}{is_child}{is_over}")?;
        self.len += 1;
        Ok(())
    }

    pub(crate) fn into_reader(self) -> io::Result<SpoolReader> {
        let rows_left = self.len;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(SpoolReader { file, rows_left })
    }
}

impl SpoolReader {
    pub(crate) fn rows_left(&self) -> usize {
        self.rows_left
    }

    /// Returns up to `most` rows that come before the rows of the last call, in reverse order.
    pub(crate) fn next_rows(&mut self, most: usize) -> io::Result<Vec<SpooledExecution>> {
        let first = self.rows_left.saturating_sub(most);
        let mut bytes = vec![0; (self.rows_left - first) * ROW_LEN];
        self.file.seek(SeekFrom::Start((first * ROW_LEN) as u64))?;
        self.file.read_exact(&mut bytes)?;
        self.rows_left = first;
        bytes.chunks_exact(ROW_LEN).rev().map(read_row).collect()
    }
}

fn read_row(row: &[u8]) -> io::Result<SpooledExecution> {
    let damaged =
        || io::Error::new(io::ErrorKind::InvalidData, "the list of executions is damaged");
    let id = str::from_utf8(&row[..ID_LEN]).ok().and_then(|id| id.trim_end().parse().ok());
    let is_set = |at: usize| row[ID_LEN + at] == b'x';
    Ok(SpooledExecution { id: id.ok_or_else(damaged)?, is_child: is_set(0), is_over: is_set(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_reverse_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::create(&path).unwrap();
        assert!(!path.exists());
        let longest = format!("exec_{}_aaaaaaaaa", u64::MAX);
        let ids = ["exec_0_aaaaaaaaa", "exec_1763712000_abc123def", &longest];
        let rows: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(n, id)| SpooledExecution {
                id: id.parse().unwrap(),
                is_child: n == 0,
                is_over: n == 1,
            })
            .collect();
        for row in &rows {
            spool.push(*row).unwrap();
        }
        let mut reader = spool.into_reader().unwrap();
        assert_eq!(reader.next_rows(2).unwrap(), [rows[2], rows[1]]);
        assert_eq!((reader.rows_left(), reader.next_rows(2).unwrap()), (1, vec![rows[0]]));
        assert!(reader.next_rows(2).unwrap().is_empty());
    }
}
