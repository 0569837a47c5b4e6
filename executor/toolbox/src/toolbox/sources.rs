//! Starts the sources of sets, connects failed sources again, and waits for their tools.

use std::{sync::PoisonError, time::Duration};

use shared::{
    id::{ToolName, ToolSetName},
    tool::NameOrigin,
};
use tokio::time;

use super::{SetStatus, ToolSet, Toolbox};

impl Toolbox {
    /// Sets the function that connects failed sets again. Later calls have no effect.
    pub fn set_reconnect(&self, reconnect: impl Fn(&ToolSetName) -> bool + Send + Sync + 'static) {
        let _ = self.0.reconnect.set(Box::new(reconnect));
    }

    /// Sets the function that starts the source of an idle set. Later calls have no effect.
    pub fn set_start(&self, start: impl Fn(&ToolSetName) + Send + Sync + 'static) {
        let _ = self.0.start.set(Box::new(start));
    }

    /// Starts the idle sets that are needed. Returns `true` if a set starts.
    pub fn start_sets(&self, is_needed: impl Fn(&ToolSet) -> bool) -> bool {
        let must_start = |set: &ToolSet| set.status == SetStatus::Idle && is_needed(set);
        if !self.lock_inventory().sets.iter().any(must_start) {
            return false;
        }
        let names: Vec<ToolSetName> = self.change_sets(|sets| {
            let started = sets.iter_mut().filter(|set| must_start(set));
            let started = started.map(|set| {
                set.status = SetStatus::Connecting;
                set.name.clone()
            });
            started.collect()
        });
        for name in &names {
            if let Some(start) = self.0.start.get() {
                start(name);
            }
        }
        !names.is_empty()
    }

    /// Starts the idle sets that could have a tool with one of these names: the named set, or all
    /// sets if the name has no set.
    pub(super) fn start_sets_of<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) {
        for name in names {
            let inventory = self.lock_inventory();
            let is_known = matches!(
                inventory.name_index().find(name.as_str()),
                Some((NameOrigin::Qualified, _))
            );
            let named_set = inventory.find_named_set(name).map(|set| set.name.clone());
            drop(inventory);
            if !is_known {
                self.start_sets(|set| named_set.as_ref().is_none_or(|name| *name == set.name));
            }
        }
    }

    /// Connects a failed set again, unless its next attempt is not due yet. Returns `true` if the
    /// set starts to connect.
    pub fn reconnect_set(&self, name: &ToolSetName) -> bool {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let is_failed = |set: &ToolSet| matches!(set.status, SetStatus::Failed { .. });
        let set = inventory.sets.iter_mut().find(|set| set.name == *name && is_failed(set));
        let Some(set) = set else { return false };
        // Keeps the lock until the state is `Connecting`, because the result must not arrive before
        // that state.
        if !self.0.reconnect.get().is_some_and(|reconnect| reconnect(name)) {
            return false;
        }
        set.status = SetStatus::Connecting;
        inventory.reconnecting.insert(name.clone());
        inventory.revision += 1;
        drop(inventory);
        self.0.changes.send_replace(());
        true
    }

    /// Connects every failed set again whose next attempt is due.
    pub fn reconnect_all(&self) {
        let failed: Vec<ToolSetName> = {
            let inventory = self.lock_inventory();
            let is_failed = |set: &&ToolSet| matches!(set.status, SetStatus::Failed { .. });
            inventory.sets.iter().filter(is_failed).map(|set| set.name.clone()).collect()
        };
        for name in failed {
            self.reconnect_set(&name);
        }
    }

    /// Starts all idle sets. Waits at most `timeout` until no set is connecting for the first time.
    pub async fn wait_for_sets(&self, timeout: Duration) {
        self.wait_for_started_sets(timeout, |_| true).await;
    }

    /// Starts the idle sets that are needed, and leaves others idle. Waits at most `timeout` until
    /// no set is connecting for the first time.
    pub async fn wait_for_started_sets(
        &self,
        timeout: Duration,
        is_needed: impl Fn(&ToolSet) -> bool,
    ) {
        let is_connected = || {
            self.start_sets(&is_needed);
            !self.has_first_connecting()
        };
        self.wait_until(timeout, is_connected).await;
    }

    /// Waits at most `timeout` until a set is not connecting, and starts it if it is idle. Returns
    /// its state, or `None` for an unknown set.
    pub async fn wait_for_set(&self, name: &ToolSetName, timeout: Duration) -> Option<SetStatus> {
        let status = || {
            self.start_sets(|set| set.name == *name);
            self.set(name).map(|set| set.status)
        };
        self.wait_until(timeout, || status() != Some(SetStatus::Connecting)).await;
        status()
    }

    /// Starts the idle sets that could have these names. Waits at most `timeout` until no
    /// connecting set can change the meaning of these names.
    pub async fn wait_for_names(&self, names: &[ToolName], timeout: Duration) {
        let are_final = || {
            self.start_sets_of(names);
            !names.iter().any(|name| self.may_change(name))
        };
        self.wait_until(timeout, are_final).await;
    }

    /// Waits at most `timeout` until a condition on the sets holds.
    async fn wait_until(&self, timeout: Duration, holds: impl Fn() -> bool) {
        let mut changes = self.subscribe_changes();
        let wait = async {
            loop {
                changes.mark_unchanged();
                if holds() || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = time::timeout(timeout, wait).await;
    }

    fn has_first_connecting(&self) -> bool {
        let inventory = self.lock_inventory();
        inventory.sets.iter().any(|set| inventory.is_first_connecting(set))
    }
}
