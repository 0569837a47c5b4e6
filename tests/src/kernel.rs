//! What the machine that the tests run on has.

use std::{
    process::{Command, Stdio},
    sync::OnceLock,
};

/// With this, a test that needs what the machine has not fails: nothing is left out unseen.
const STRICT: &str = "FABER_TEST_STRICT";

/// Returns whether a process may have a view of the file system of its own, as another program than
/// Faber finds out.
///
/// # Panics
///
/// If it may not, and nothing is to be left out.
pub fn has_views() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let has = *HAS.get_or_init(|| {
        let ways: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-current-user"]];
        ways.iter().any(|way| {
            let mut command = Command::new("unshare");
            command.args(*way).args(["mount", "--bind", "/usr", "/usr"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    });
    assert!(
        has || std::env::var_os(STRICT).is_none(),
        "nobody may make a mount namespace here, and `{STRICT}` is set"
    );
    has
}
