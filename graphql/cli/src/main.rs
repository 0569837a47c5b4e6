use std::process::ExitCode;

/// Replaces the C library's allocator, because that allocator does not return the memory of large
/// plans to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Only this crate reads the variable, so that another commit compiles nothing else again.
    cli::main(&std::env::args_os().collect::<Vec<_>>(), option_env!("FABER_BUILD"))
}
