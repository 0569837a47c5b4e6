//! The `faber` binary: `FABER_TEST_BINARY` names it, or the first test that needs it builds it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Returns the path of the binary. If `FABER_TEST_BINARY` is not set, builds it into the target
/// folder of the running test, because Cargo builds binaries only for tests of their own package.
///
/// # Panics
///
/// If the named file is missing, or the build fails.
pub fn faber() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| from_environment().unwrap_or_else(build_binary))
}

fn from_environment() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("FABER_TEST_BINARY")?);
    // Tests start the binary in other folders, so the path must be absolute.
    let path = std::path::absolute(&path).unwrap_or(path);
    assert!(path.is_file(), "`FABER_TEST_BINARY` is `{}`: no such file", path.display());
    Some(path)
}

fn build_binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // The path of a test is `target/PROFILE/deps/it-0123`.
    let profile = test.ancestors().nth(2).expect("tests are built into `deps`");
    let target = profile.parent().expect("a profile has a folder in the target folder");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    // The build selects the features of `cargo test --workspace`, because with other features
    // dependencies would be compiled again.
    let mut cargo = Command::new(env!("CARGO"));
    // Removes what `cargo test` sets for each test process, and the variable of `tests/run_timed`.
    // Build scripts read these variables, so with other values Cargo would compile the
    // dependencies again, now and in the next command.
    let of_test =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| of_test(name) || name == "RUSTC_BOOTSTRAP") {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--profile", name])
        .args(["--package", "faber-cli", "--package", "graphql", "--package", "tests"])
        .args(["--bin", "faber", "--test", "it"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "`faber` does not build");
    profile.join("faber")
}
