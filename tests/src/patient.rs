//! Repeats requests to a store that may be unavailable for a short time. On a busy machine, a
//! replica set also loses its primary now and then.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// Longest time without an answer.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// Delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Repeats a question until it is answered.
///
/// # Panics
///
/// If there is no answer in time.
pub async fn retry_until_answered<T, E: Display>(ask: impl AsyncFn() -> Result<T, E>) -> T {
    let deadline = Instant::now() + MAX_OUTAGE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(err) => assert!(Instant::now() < deadline, "no answer: {err}"),
        }
        sleep(RETRY_DELAY).await;
    }
}
