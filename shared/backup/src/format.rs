//! The file of a backup.
//!
//! ```text
//! magic     8 bytes
//! version   u32
//! header    its length as u32, and JSON: the version of Faber, the time and the kind of store
//! blocks    `B`, plain length as u32, stored length as u32, and entries, compressed by zlib
//! trailer   `T`, its length as u32, and JSON: the number of entries of each type
//! checksum  the SHA-256 of everything before, 32 bytes
//! ```
//!
//! Numbers are little-endian. The magic, the version and the checksum have the same positions in
//! all later versions, so that each version can distinguish a newer file from a damaged one.

use std::{
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom, Write},
};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::hex::to_hex;

use crate::entry::Entry;

/// The first bytes of a backup. The first byte is not ASCII, and the other bytes reveal a transfer
/// that changed line ends.
const MAGIC: [u8; 8] = *b"\x89FBK\r\n\x1a\n";
pub(crate) const FORMAT_VERSION: u32 = 1;
const BLOCK: u8 = b'B';
const TRAILER: u8 = b'T';
const CHECKSUM_LEN: usize = 32;
/// Length of the magic and the version.
const START_LEN: u64 = 12;
/// A block ends with the entry that reaches this length.
const BLOCK_BYTES: usize = 1 << 20;
/// Maximum plain length of a block. One entry may be a plan of 256 MiB.
const MAX_BLOCK_BYTES: usize = 1 << 30;
const READ_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupHeader {
    pub faber: String,
    pub created_at: String,
    pub store: String,
}

pub(crate) type EntryCounts = BTreeMap<String, u64>;

#[derive(Debug)]
pub(crate) enum FormatError {
    Io(io::Error),
    NotBackup,
    TooNew { found: u32 },
    Damaged(String),
}

impl From<io::Error> for FormatError {
    fn from(err: io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it is cut off".to_owned()),
            _ => Self::Io(err),
        }
    }
}

pub(crate) struct FileWriter<W> {
    out: W,
    hash: Sha256,
    block: Vec<u8>,
    counts: EntryCounts,
}

impl<W: Write> FileWriter<W> {
    pub(crate) fn new(out: W, header: &BackupHeader) -> io::Result<Self> {
        let mut file =
            Self { out, hash: Sha256::new(), block: Vec::new(), counts: EntryCounts::new() };
        file.put(&MAGIC)?;
        file.put(&FORMAT_VERSION.to_le_bytes())?;
        let header = serde_json::to_vec(header)?;
        file.put_len(header.len())?;
        file.put(&header)?;
        Ok(file)
    }

    pub(crate) fn write_line(&mut self, type_name: &str, line: &str) -> io::Result<()> {
        self.block.extend_from_slice(line.as_bytes());
        self.block.push(b'\n');
        match self.counts.get_mut(type_name) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(type_name.to_owned(), 1)),
        }
        if self.block.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    /// Writes the last block, the trailer and the checksum. The caller must still flush the file to
    /// the disk.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.write_block()?;
        let trailer = serde_json::to_vec(&self.counts)?;
        self.put(&[TRAILER])?;
        self.put_len(trailer.len())?;
        self.put(&trailer)?;
        self.out.write_all(&self.hash.finalize())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.block)?;
        let stored = encoder.finish()?;
        self.put(&[BLOCK])?;
        self.put_len(self.block.len())?;
        self.put_len(stored.len())?;
        self.put(&stored)?;
        self.block.clear();
        self.block.shrink_to(2 * BLOCK_BYTES);
        Ok(())
    }

    fn put_len(&mut self, len: usize) -> io::Result<()> {
        let len = u32::try_from(len).ok().filter(|len| *len as usize <= MAX_BLOCK_BYTES);
        let too_large = || io::Error::other("an entry is too large for a backup");
        self.put(&len.ok_or_else(too_large)?.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }
}

pub(crate) struct FileReader<R> {
    input: R,
    header: BackupHeader,
    sha256: String,
    first_block_position: u64,
    checksum_position: u64,
    position: u64,
    block: Vec<u8>,
    block_position: usize,
    counts: EntryCounts,
    has_ended: bool,
}

impl<R: Read + Seek> FileReader<R> {
    /// Opens a file. Reads the whole file once, to compare the checksum.
    pub(crate) fn open(mut input: R) -> Result<Self, FormatError> {
        let len = input.seek(SeekFrom::End(0))?;
        let (sha256, version) = check_frame(&mut input, len)?;
        if version != FORMAT_VERSION {
            return Err(FormatError::TooNew { found: version });
        }
        let checksum_position = len - CHECKSUM_LEN as u64;
        input.seek(SeekFrom::Start(START_LEN))?;
        let header_len = read_len(&mut input)?;
        let first_block_position = START_LEN + 4 + header_len as u64;
        if first_block_position > checksum_position {
            return Err(FormatError::Damaged("its header is cut off".to_owned()));
        }
        let mut header = vec![0; header_len];
        input.read_exact(&mut header)?;
        let header = serde_json::from_slice(&header)
            .map_err(|err| FormatError::Damaged(format!("its header cannot be read: {err}")))?;
        Ok(Self {
            input,
            header,
            sha256,
            first_block_position,
            checksum_position,
            position: first_block_position,
            block: Vec::new(),
            block_position: 0,
            counts: EntryCounts::new(),
            has_ended: false,
        })
    }

    pub(crate) fn header(&self) -> &BackupHeader {
        &self.header
    }

    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the number of bytes that were read, and the number of bytes before the checksum.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.position, self.checksum_position)
    }

    /// Starts again with the first entry.
    pub(crate) fn rewind(&mut self) -> Result<(), FormatError> {
        self.position = self.input.seek(SeekFrom::Start(self.first_block_position))?;
        self.block.clear();
        self.block_position = 0;
        self.counts.clear();
        self.has_ended = false;
        Ok(())
    }

    pub(crate) fn next_entry(&mut self) -> Result<Option<(Entry, usize)>, FormatError> {
        while self.block_position >= self.block.len() {
            if self.has_ended || !self.read_block()? {
                return Ok(None);
            }
        }
        let rest = &self.block[self.block_position..];
        let len = rest.iter().position(|byte| *byte == b'\n');
        let len = len.ok_or_else(|| FormatError::Damaged("an entry has no end".to_owned()))?;
        let entry = Entry::decode(&rest[..len]).map_err(|why| {
            let number = self.counts.values().sum::<u64>() + 1;
            FormatError::Damaged(format!("entry {number}: {why}"))
        })?;
        self.block_position += len + 1;
        *self.counts.entry(entry.type_name().to_owned()).or_default() += 1;
        Ok(Some((entry, len)))
    }

    /// Reads the next block. At the trailer, compares its numbers of entries with the entries that
    /// were read, and returns `false`.
    fn read_block(&mut self) -> Result<bool, FormatError> {
        let mut tag = [0];
        self.input.read_exact(&mut tag)?;
        if tag[0] == TRAILER {
            let len = read_len(&mut self.input)?;
            self.position += 5 + len as u64;
            if self.position != self.checksum_position {
                return Err(FormatError::Damaged("its trailer has a wrong length".to_owned()));
            }
            let mut trailer = vec![0; len];
            self.input.read_exact(&mut trailer)?;
            let counts: EntryCounts = serde_json::from_slice(&trailer).map_err(|err| {
                FormatError::Damaged(format!("its trailer cannot be read: {err}"))
            })?;
            if counts != self.counts {
                return Err(FormatError::Damaged("it lacks entries".to_owned()));
            }
            self.has_ended = true;
            return Ok(false);
        }
        if tag[0] != BLOCK {
            return Err(FormatError::Damaged(format!("there is no block at {}", self.position)));
        }
        let (plain_len, stored_len) = (read_len(&mut self.input)?, read_len(&mut self.input)?);
        self.position += 9 + stored_len as u64;
        if self.position > self.checksum_position {
            return Err(FormatError::Damaged("a block is cut off".to_owned()));
        }
        self.block.clear();
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.block_position = 0;
        let stored = self.input.by_ref().take(stored_len as u64);
        ZlibDecoder::new(stored)
            .take(plain_len as u64 + 1)
            .read_to_end(&mut self.block)
            .map_err(|err| FormatError::Damaged(format!("a block cannot be read: {err}")))?;
        // Goes to the end of the block, because a decoder may leave bytes of its input unread.
        self.input.seek(SeekFrom::Start(self.position))?;
        if self.block.len() != plain_len {
            return Err(FormatError::Damaged("a block has a wrong length".to_owned()));
        }
        Ok(true)
    }
}

/// Checks the magic and the checksum. Returns the checksum in lower-case digits, and the version.
fn check_frame<R: Read + Seek>(input: &mut R, len: u64) -> Result<(String, u32), FormatError> {
    input.seek(SeekFrom::Start(0))?;
    let mut start = Vec::new();
    input.by_ref().take(START_LEN).read_to_end(&mut start)?;
    if !start.starts_with(&MAGIC) {
        return Err(FormatError::NotBackup);
    }
    let version = start.get(MAGIC.len()..).and_then(|bytes| bytes.try_into().ok());
    let (Some(version), Some(hashed_len)) =
        (version.map(u32::from_le_bytes), len.checked_sub(CHECKSUM_LEN as u64))
    else {
        return Err(FormatError::Damaged("it is cut off".to_owned()));
    };
    input.seek(SeekFrom::Start(0))?;
    let (mut hash, mut left) = (Sha256::new(), hashed_len);
    let mut buffer = vec![0; READ_BYTES];
    while left > 0 {
        let part = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        input.read_exact(&mut buffer[..part])?;
        hash.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut written = [0; CHECKSUM_LEN];
    input.read_exact(&mut written)?;
    if hash.finalize()[..] != written {
        return Err(FormatError::Damaged("its checksum is wrong".to_owned()));
    }
    Ok((to_hex(written), version))
}

/// Returns `true` if a file begins like a backup.
pub(crate) fn has_magic(mut input: impl Read) -> bool {
    let mut start = [0; MAGIC.len()];
    input.read_exact(&mut start).is_ok() && start == MAGIC
}

fn read_len(input: &mut impl Read) -> Result<usize, FormatError> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    let len = u32::from_le_bytes(bytes) as usize;
    if len > MAX_BLOCK_BYTES {
        return Err(FormatError::Damaged(format!("a block of {len} bytes is too large")));
    }
    Ok(len)
}

#[cfg(test)]
mod tests;
