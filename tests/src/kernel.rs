use std::{
    process::{Command, Stdio},
    sync::OnceLock,
};

/// If this variable is set, tests that need a missing feature of the kernel fail. If it is not set,
/// these tests expect that Faber refuses to run the command.
const STRICT_VARIABLE: &str = "FABER_TEST_STRICT";

/// Returns `true` if the kernel lets a process create a mount namespace. The program `unshare`
/// tries this, so that the answer does not depend on Faber.
///
/// # Panics
///
/// If the kernel does not allow mount namespaces, and `FABER_TEST_STRICT` is set.
pub fn has_mount_namespaces() -> bool {
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
        has || std::env::var_os(STRICT_VARIABLE).is_none(),
        "mount namespaces are not allowed here, and `{STRICT_VARIABLE}` is set"
    );
    has
}
