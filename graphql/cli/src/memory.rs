//! Returns free memory to the system. The allocators keep freed memory until a later call of the
//! same thread, but after a large plan a thread can be idle for a long time.

use std::{
    ffi::{c_int, c_long},
    time::Duration,
};

// Links the allocator, because `release_free_memory` calls its C functions.
use mimalloc as _;
use nix::unistd::{SysconfVar, sysconf};

const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Memory is released again when the process is larger than its smallest size by more than this
/// number of bytes.
const MIN_GROWTH_BYTES: u64 = 16 << 20;

pub(crate) fn start_release_thread() {
    unmap_large_blocks();
    shorten_purge_delay();
    // Ignores a failure, because without this thread the process works, but keeps more memory.
    let _ = std::thread::Builder::new().name("memory".into()).spawn(|| {
        // The smallest size after a release. A release never raises it, because memory that was in
        // use can become free later.
        let mut smallest_size = 0;
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let Some(size) = read_resident_bytes() else { return };
            if size <= smallest_size + MIN_GROWTH_BYTES {
                continue;
            }
            release_free_memory();
            let size = read_resident_bytes().unwrap_or(size);
            smallest_size = if smallest_size == 0 { size } else { smallest_size.min(size) };
        }
    });
}

/// Returns the resident memory of this process in bytes. Returns `None` if the system does not
/// report it.
fn read_resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page_size = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    Some(pages * page_size)
}

/// Makes the C library return each block of 256 KiB or more when it is freed. By default, this
/// minimum size grows with the largest freed block, up to 32 MiB.
#[cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "there is no safe function for this"))]
fn unmap_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the process still has only one thread. If `mallopt` rejects the value, it changes
    // nothing.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 256 << 10);
    }
}

/// Makes Rust's allocator return a free page to the system after 10 ms. By default it waits a
/// second, and a thread that becomes idle within that second keeps the page.
#[expect(unsafe_code, reason = "there is no safe function for this")]
fn shorten_purge_delay() {
    /// `mi_option_purge_delay` of `mimalloc.h`.
    const PURGE_DELAY: c_int = 15;
    unsafe extern "C" {
        fn mi_option_set(option: c_int, value: c_long);
    }
    // SAFETY: the function stores a number, which the allocator reads when it frees a page.
    unsafe { mi_option_set(PURGE_DELAY, 10) };
}

#[expect(unsafe_code, reason = "there is no safe function for this")]
fn release_free_memory() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: both functions get no pointer and touch free memory only. Other threads can use both
    // allocators at the same time.
    unsafe { mi_collect(true) };
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
