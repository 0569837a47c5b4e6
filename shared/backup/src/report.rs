use serde::Serialize;

use crate::error::ObjectList;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub requests: u64,
    pub plans: u64,
    pub executions: u64,
    pub events: u64,
    /// Commands that waited in inboxes, because no worker had recorded them in a log yet.
    pub commands: u64,
    pub records: u64,
    pub blobs: u64,
    pub audit_entries: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub counts: Counts,
    /// Objects that were left out because they are damaged in the store.
    pub damaged: ObjectList,
    /// Rows that the store could not read and therefore left out of its lists. Log lines name these
    /// rows.
    pub unreadable: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.plans += other.plans;
        self.executions += other.executions;
        self.events += other.events;
        self.commands += other.commands;
        self.records += other.records;
        self.blobs += other.blobs;
        self.audit_entries += other.audit_entries;
    }
}

impl Report {
    pub fn is_incomplete(&self) -> bool {
        !self.damaged.is_empty() || self.unreadable > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Listing,
    Requests,
    Executions,
    Plans,
    Records,
    Audit,
    Checking,
    Comparing,
    Writing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub done: u64,
    pub total: Option<u64>,
}

/// Called after each page of a list, each block of a backup, or some lines of an import.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listing => "listing executions",
            Self::Requests => "reading requests",
            Self::Executions => "reading executions",
            Self::Plans => "reading plans",
            Self::Records => "reading records",
            Self::Audit => "reading audit entries",
            Self::Checking => "checking the file",
            Self::Comparing => "comparing with the store",
            Self::Writing => "writing",
        }
    }
}
