//! The processes of Faber's user on this machine.

use std::collections::BTreeSet;

use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System as Machine, UpdateKind};

use super::{System, background::marker_variable};

pub(super) struct ProcessSnapshot {
    machine: Machine,
    own_pid: Pid,
    started_pids: BTreeSet<Pid>,
    /// Processes with the marker of a background command. An earlier run of Faber may have started
    /// them.
    marked_pids: BTreeSet<Pid>,
}

impl ProcessSnapshot {
    /// Takes a snapshot. For CPU usage, it takes two snapshots and waits between them.
    pub(super) fn take_snapshot(system: &System, with_cpu_usage: bool) -> Option<Self> {
        let mut machine = Machine::new().ok()?;
        refresh_processes(&mut machine);
        if with_cpu_usage {
            std::thread::sleep(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL);
            refresh_processes(&mut machine);
        }
        let started_pids = system.background.session_ids().into_iter().map(Pid::from_u32).collect();
        let mark = marker_variable(system.root.root_path());
        let is_marked = |process: &&Process| process.environ().contains(&mark);
        let marked_pids =
            machine.processes().values().filter(is_marked).map(Process::pid).collect();
        Some(Self {
            machine,
            own_pid: Pid::from_u32(std::process::id()),
            started_pids,
            marked_pids,
        })
    }

    pub(super) fn user_processes(&self) -> Vec<&Process> {
        let user = self.machine.process(self.own_pid).and_then(Process::effective_user_id);
        let all = self.machine.processes().values();
        let mut all: Vec<_> = all
            .filter(|process| user.is_some() && process.effective_user_id() == user)
            .filter(|process| process.thread_kind().is_none())
            .collect();
        all.sort_by_key(|process| process.pid());
        all
    }

    /// Returns whether Faber started a process or one of its ancestors.
    pub(super) fn is_started(&self, process: &Process) -> bool {
        let is_ours = |pid: &Pid| self.started_pids.contains(pid);
        process.session_id().as_ref().is_some_and(is_ours)
            || self
                .with_ancestors(process.pid())
                .iter()
                .any(|pid| is_ours(pid) || self.marked_pids.contains(pid))
    }

    pub(super) fn remaining_processes(&self, id: i64) -> Vec<&Process> {
        let belongs_to_session = |process: &&Process| {
            let session = process.session_id().filter(|session| i64::from(session.as_u32()) == id);
            // The session may belong to an earlier run of Faber, and its id may have been reused
            // since. So a process of such a session must have the marker.
            session.is_some_and(|session| self.started_pids.contains(&session)) || {
                session.is_some() && self.marked_pids.contains(&process.pid())
            }
        };
        self.user_processes().into_iter().filter(belongs_to_session).collect()
    }

    pub(super) fn is_group_leader(&self, process: &Process) -> bool {
        let id = process.pid();
        let is_group_leader = || {
            let pid = i32::try_from(id.as_u32()).ok().map(nix::unistd::Pid::from_raw);
            pid.is_some() && nix::unistd::getpgid(pid).ok() == pid
        };
        self.started_pids.contains(&id) || (self.marked_pids.contains(&id) && is_group_leader())
    }

    pub(super) fn is_ancestor(&self, process: &Process) -> bool {
        self.with_ancestors(self.own_pid).contains(&process.pid())
    }

    fn with_ancestors(&self, from: Pid) -> BTreeSet<Pid> {
        let mut line = BTreeSet::new();
        let mut next = Some(from);
        while let Some(pid) = next.filter(|pid| line.insert(*pid)) {
            next = self.machine.process(pid).and_then(Process::parent);
        }
        line
    }
}

fn refresh_processes(machine: &mut Machine) {
    let wanted = ProcessRefreshKind::nothing()
        .with_cpu()
        .with_memory()
        .with_cmd(UpdateKind::OnlyIfNotSet)
        .with_user(UpdateKind::OnlyIfNotSet)
        .with_environ(UpdateKind::OnlyIfNotSet)
        .without_tasks();
    machine.refresh_processes_specifics(ProcessesToUpdate::All, true, wanted);
}

/// Returns the arguments of a process. Without arguments, returns its name.
pub(super) fn command_line(process: &Process) -> String {
    let words: Vec<_> = process.cmd().iter().map(|word| word.to_string_lossy()).collect();
    if words.is_empty() {
        return format!("[{}]", process.name().to_string_lossy());
    }
    words.join(" ").chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
