//! Versions of the layout of stores, and the report of a migration. `docs/design/store-layout.md`
//! has the rules for a change of the layout.

use std::time::{Duration, Instant};

use super::StoreError;

pub const LAYOUT: u32 = 7;
/// The oldest layout whose programs can use a store together with programs of [`LAYOUT`].
pub const OLDEST_LAYOUT: u32 = 6;

/// The first layout whose rows and documents have their present form. Rows and documents of earlier
/// layouts are converted.
pub const CONVERTED_LAYOUT: u32 = 6;

/// The first layout whose requests have labels.
pub const REQUEST_LABELS_LAYOUT: u32 = 7;

/// Time between two log lines about a migration. A migration that takes less time logs nothing.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Refuses a store that only programs of later layouts can use.
///
/// `version` is the layout of the store, and `oldest` the oldest layout that can use it. Layouts
/// before 6 did not store `oldest`.
pub fn check_layout(version: u32, oldest: Option<u32>) -> Result<(), StoreError> {
    if oldest.unwrap_or(version) > LAYOUT {
        return Err(StoreError::TooNew { found: version, newest_known: LAYOUT });
    }
    Ok(())
}

pub fn store_in_use_error(worker: &str) -> StoreError {
    StoreError::Unavailable(format!(
        "the store has an earlier layout and must be converted, but {worker} uses it: stop all \
         Faber processes of the earlier version, and start this version again"
    ))
}

#[derive(Debug)]
pub struct MigrationReport {
    part: &'static str,
    done: u64,
    total: u64,
    reported_at: Instant,
}

impl MigrationReport {
    pub fn start(part: &'static str, done: u64, total: u64) -> Self {
        Self { part, done, total: total.max(done), reported_at: Instant::now() }
    }

    pub fn add(&mut self, documents: usize) {
        self.done += documents as u64;
        if self.reported_at.elapsed() >= REPORT_INTERVAL {
            self.reported_at = Instant::now();
            let Self { part, done, total, .. } = self;
            tracing::warn!("converting the store to layout {LAYOUT}: {part}, {done} of {total}");
        }
    }

    pub fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_refused_if_no_program_of_this_layout_may_use_it() {
        for (version, oldest, is_fine) in [
            (1, None, true),
            (LAYOUT, Some(LAYOUT), true),
            (LAYOUT + 1, Some(LAYOUT), true),
            (LAYOUT + 1, Some(LAYOUT + 1), false),
            (LAYOUT + 1, None, false),
        ] {
            let newest_known = LAYOUT;
            let expected = if is_fine {
                Ok(())
            } else {
                Err(StoreError::TooNew { found: version, newest_known })
            };
            assert_eq!(check_layout(version, oldest), expected, "{version} {oldest:?}");
        }
    }
}
