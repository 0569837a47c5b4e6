//! Warns when the clock of the machine is corrected and the time of the store is not.

use std::time::Duration;

use shared::clock::{Clock as _, WallClock, describe_difference};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::Engine;

/// Time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(30);

impl Engine {
    /// Compares the time of the store with the clock of the machine, until `stop`. Warns once each time
    /// that they part.
    pub async fn watch_clock(self, stop: CancellationToken) {
        let mut is_told = false;
        loop {
            let difference = describe_difference(self.clock.now(), WallClock.now());
            if let Some(difference) = difference.as_ref().filter(|_| !is_told) {
                tracing::warn!(
                    "{difference}: stop every process that uses the store, and start them again"
                );
            }
            is_told = difference.is_some();
            tokio::select! {
                () = stop.cancelled() => return,
                () = time::sleep(INTERVAL) => (),
            }
        }
    }
}
