//! Repeats questions to a store that may be unavailable for a moment. On a busy machine a replica
//! set loses its primary, too.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// Longest time without an answer.
const MAX_AWAY: Duration = Duration::from_mins(1);
/// Delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Repeats a question until it is answered.
///
/// # Panics
///
/// If there is no answer in time.
pub async fn insist<T, E: Display>(ask: impl AsyncFn() -> Result<T, E>) -> T {
    let deadline = Instant::now() + MAX_AWAY;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(err) => assert!(Instant::now() < deadline, "no answer: {err}"),
        }
        sleep(RETRY_DELAY).await;
    }
}
