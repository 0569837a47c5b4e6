//! The `faber` binary.

use std::process::ExitCode;

/// Gives the memory of large plans back to the system when they are done; the allocator of the C library
/// keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main(&std::env::args_os().collect::<Vec<_>>())
}
