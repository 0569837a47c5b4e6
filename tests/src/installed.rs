//! Programs and files that tests need. `./tests/run` installs them, or names those that are
//! missing.

use std::path::{Path, PathBuf};

/// Returns `name` unchanged if the program is installed.
///
/// # Panics
///
/// If no folder of `PATH` contains it.
pub fn find_program(name: &str) -> &str {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(name).is_file());
    assert!(is_there, "{}", missing_message(name));
    name
}

/// Returns the path in an environment variable that `./tests/run` sets. If the variable is not set,
/// returns a path that is relative to `tests/.cache`.
///
/// # Panics
///
/// If the path does not exist.
pub fn find_path(variable: &str, otherwise: &str) -> PathBuf {
    let cached = || Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache").join(otherwise);
    let path = std::env::var_os(variable).map_or_else(cached, PathBuf::from);
    assert!(path.exists(), "{}", missing_message(&path.display().to_string()));
    path
}

fn missing_message(missing: &str) -> String {
    format!(
        "`{missing}` is missing: run `./tests/run`, which installs what the tests need and names \
         what it cannot install, or `eval \"$(./tests/run --env)\"` before a `cargo test` of your \
         own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "`no-such-program` is missing: run `./tests/run`")]
    fn a_missing_program_names_the_command_that_installs_it() {
        find_program("no-such-program");
    }

    #[test]
    #[should_panic(expected = "/.cache/no-such-folder` is missing: run `./tests/run`")]
    fn a_missing_file_names_the_command_that_installs_it() {
        find_path("FABER_TEST_NOT_SET", "no-such-folder");
    }
}
