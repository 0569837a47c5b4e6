//! Limits of one commit. Appends that arrive during a commit are written together by the next
//! commit.

pub const COMMIT_OPERATIONS: usize = 1_024;
/// Bytes after which a commit takes no further operation.
pub const COMMIT_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct CommitSize {
    operations: usize,
    bytes: usize,
}

impl CommitSize {
    pub fn add(&mut self, bytes: usize) {
        self.operations += 1;
        self.bytes += bytes;
    }

    pub fn is_full(&self) -> bool {
        self.operations >= COMMIT_OPERATIONS || self.bytes >= COMMIT_BYTES
    }
}
