//! The `faber` binary: one that is there already, or built when a test first wants it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Returns the path of the binary: the one that `FABER_TEST_BINARY` names, where that is set.
/// Cargo builds it for the tests of its own package only, so otherwise this asks for it, into the
/// folder that the running test comes from.
///
/// # Panics
///
/// If there is none where one is named, or it does not build.
pub fn faber() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| named().unwrap_or_else(build))
}

/// Returns the binary that somebody has named.
fn named() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("FABER_TEST_BINARY")?);
    // Tests start it in folders of their own.
    let path = std::path::absolute(&path).unwrap_or(path);
    assert!(path.is_file(), "`FABER_TEST_BINARY` is `{}`: no such file", path.display());
    Some(path)
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // target/PROFILE/deps/it-0123
    let profile = test.ancestors().nth(2).expect("tests are built into `deps`");
    let target = profile.parent().expect("a profile has a folder in the target folder");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "graphql", "--bin", "faber", "--profile", name])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "`faber` does not build");
    profile.join("faber")
}
