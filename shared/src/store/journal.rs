//! How much one commit takes: everything that waits, up to a limit.
//!
//! All appends of a process go through one writer per store. While a commit is on its way others
//! gather; the next commit takes them all. Nothing ever waits for a timer: a lone append is
//! committed at once.

/// The most operations that one commit takes.
pub const COMMIT_OPERATIONS: usize = 1_024;
/// The most bytes that one commit takes; a single operation may have more.
pub const COMMIT_BYTES: usize = 16 << 20;

/// Decides how much one commit takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    operations: usize,
    bytes: usize,
}

impl Load {
    /// Counts an operation of `bytes` in.
    pub fn add(&mut self, bytes: usize) {
        self.operations += 1;
        self.bytes += bytes;
    }

    /// Returns whether the commit should begin now.
    pub fn is_full(&self) -> bool {
        self.operations >= COMMIT_OPERATIONS || self.bytes >= COMMIT_BYTES
    }
}
