//! Programs that end when the test process ends, in whatever way.
//!
//! A `static` is never dropped and a killed process runs no destructor, so `Drop` alone is not
//! enough. Therefore a small shell starts the program. It reads a pipe that only the test process
//! holds open, and kills the program when the pipe closes. The kernel closes the pipe even after
//! SIGKILL.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// Runs the program in `$@` after its first word, until the program ends or standard input closes.
/// Then removes the directory `$0`, unless the first word is `keep`. Prints the process id of the
/// program.
///
/// The output of the program goes to `$0/log`. Its last lines are shown if the program ended by
/// itself.
const SUPERVISOR: &str = r#"
afterwards=$1
shift
exec 3<&0
"$@" </dev/null >>"$0/log" 2>&1 3<&- &
program=$!
echo "$program"
exec >/dev/null
{ while read -r line; do :; done <&3; kill -9 "$program"; } >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$program" 2>/dev/null
status=$?
kill "$watcher" 2>/dev/null
[ "$status" = 137 ] || tail -n 20 "$0/log" >&2
[ "$afterwards" = keep ] || rm -rf "$0" || { sleep 1; rm -rf "$0"; }
exit "$status"
"#;

/// A program that is killed when this value is dropped or the test process ends. Its directory is
/// then removed, unless it was started with [`start_in`](Self::start_in).
#[derive(Debug)]
pub(crate) struct Supervised {
    supervisor: Child,
    id: u32,
}

impl Supervised {
    pub(crate) fn start<S: AsRef<OsStr>>(directory: TempDir, command: &[S]) -> Self {
        Self::spawn(&directory.keep(), "remove", command)
    }

    /// Starts a program in a directory that stays, so that it can be restarted there.
    pub(crate) fn start_in<S: AsRef<OsStr>>(directory: &Path, command: &[S]) -> Self {
        Self::spawn(directory, "keep", command)
    }

    fn spawn<S: AsRef<OsStr>>(directory: &Path, afterwards: &str, command: &[S]) -> Self {
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR])
            .arg(directory)
            .arg(afterwards)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // With a process group of its own, the supervisor does not get the signal of Ctrl-C. It
            // must survive to clean up.
            .process_group(0)
            .spawn()
            .expect("every Unix machine has `sh`");
        let stdout = supervisor.stdout.take().expect("standard output is piped");
        let mut id = String::new();
        BufReader::new(stdout).read_line(&mut id).expect("the supervisor prints the process id");
        Self { supervisor, id: id.trim().parse().expect("processes have numbers") }
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.id.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "`{name}` cannot be sent");
    }

    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().expect("the supervisor is our child")
    }

    /// Kills the program and waits until the supervisor has cleaned up.
    fn stop(&mut self) -> ExitStatus {
        drop(self.supervisor.stdin.take());
        self.supervisor.wait().expect("the supervisor is our child")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The shell's exit status after SIGKILL.
const KILLED_STATUS: i32 = 128 + 9;

#[test]
fn a_program_ends_when_its_pipe_closes() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_path_buf();
    let mut program = Supervised::start(directory, &["sleep", "30"]);

    let status = program.stop();

    assert_eq!((status.code(), status.signal()), (Some(KILLED_STATUS), None));
    assert!(!path.exists(), "`{}` is left behind", path.display());
}

#[test]
fn a_program_can_be_restarted_in_its_directory() {
    let directory = TempDir::new().unwrap();
    let program = Supervised::start_in(directory.path(), &["sh", "-c", "echo once; sleep 30"]);
    program.signal("-STOP");
    drop(program);
    let mut again = Supervised::start_in(directory.path(), &["sh", "-c", "sleep 30"]);
    again.signal("-KILL");
    assert_eq!(again.supervisor.wait().unwrap().code(), Some(KILLED_STATUS));
    assert!(directory.path().exists());
}

#[test]
fn the_exit_status_of_a_program_is_reported() {
    let mut program = Supervised::start(TempDir::new().unwrap(), &["sh", "-c", "exit 48"]);

    let open_pipe = program.supervisor.stdin.take(); // `wait` would close it
    let status = program.supervisor.wait().unwrap();

    assert!(open_pipe.is_some());
    assert_eq!(status.code(), Some(48));
    assert_eq!(program.exit_status(), Some(status));
}
