//! Secrets of the system, which no confined command reads, and commands of another user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use sandbox::{Confinement, kernel_support};

use super::{Sandbox, expect_refusal_if};

/// Regression: as root, a command read the passwords of all users.
#[tokio::test]
async fn a_confined_command_reads_no_secret_of_the_system() {
    let sandbox = Sandbox::new();
    let wide = |paths: &[&str]| Confinement {
        read: paths.iter().map(Into::into).collect(),
        ..Confinement::default()
    };
    for secret in ["/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-"] {
        if !Path::new(secret).exists() {
            continue;
        }
        for confine in [wide(&[]), wide(&["/etc"]), wide(&["/"])] {
            expect_refusal_if(
                sandbox.call_bash_with(confine, &format!("cat {secret}")).await,
                kernel_support().files,
            );
        }
        let linked = format!("ln -s {secret} link; cat link; r=$?; rm link; exit $r");
        expect_refusal_if(sandbox.call_bash(&linked).await, kernel_support().files);
    }
    if Path::new("/root").exists() {
        for confine in [wide(&[]), wide(&["/"])] {
            expect_refusal_if(
                sandbox.call_bash_with(confine, "ls -A /root").await,
                kernel_support().files,
            );
        }
    }
    let closed = Path::new("/etc/ssl/private");
    if closed.metadata().is_ok_and(|folder| folder.mode() & 0o005 != 0o005) {
        for confine in [wide(&[]), wide(&["/etc"]), wide(&["/"])] {
            let listed = sandbox.call_bash_with(confine, "ls -A /etc/ssl/private").await;
            expect_refusal_if(listed, kernel_support().files);
        }
    }
    let public =
        "cat /etc/passwd > /dev/null && ls /etc > /dev/null && ls -R /etc/ssl/certs > /dev/null";
    let text = sandbox.call_bash(&format!("{public} && echo read")).await.unwrap();
    assert!(text.contains("read"), "{text}");
    let named = wide(&["/etc/shadow"]);
    if is_root() {
        let text = sandbox.call_bash_with(named, "grep -c root /etc/shadow").await.unwrap();
        assert!(text.contains("STDOUT:\n1"), "a file that is named explicitly is allowed: {text}");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn confinement_as_user(name: &str) -> Confinement {
    Confinement { user: Some(name.to_owned()), ..Confinement::default() }
}

#[tokio::test]
async fn a_confined_command_can_run_as_another_user() {
    let sandbox = Sandbox::new();
    for (path, mode) in [(sandbox.folder.path().to_owned(), 0o755), (sandbox.root(), 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let err =
        sandbox.call_bash_with(confinement_as_user("no-such-user"), "true").await.unwrap_err();
    assert!(err.message.contains("there is no user `no-such-user`"), "{err}");
    let script = "id -un; id -u; id -G; echo $USER $LOGNAME; f=$(mktemp) && rm $f && echo x > made; \
                  cat /dev/stdin < /dev/null";
    let ran = sandbox.call_bash_with(confinement_as_user("nobody"), script).await;
    if !is_root() {
        let err = ran.unwrap_err();
        assert!(err.message.contains("CAP_SETUID") && err.message.contains("`nobody`"), "{err}");
        return;
    }
    let text = ran.unwrap();
    assert!(text.starts_with("STDOUT:\nnobody\n65534\n65534\nnobody nobody\n\nReturn"), "{text}");
    let made = fs::metadata(sandbox.root().join("made")).unwrap();
    assert_eq!(made.uid(), 65_534);
    let err = sandbox
        .call_bash_with(confinement_as_user("nobody"), "sleep 1000 & kill -9 $$")
        .await
        .unwrap_err();
    assert!(err.message.contains("-9"), "the watcher exits with the status of the command: {err}");
}
