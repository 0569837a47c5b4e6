//! Repeats requests to a store that can be unavailable for a short time. On a busy machine, a
//! replica set sometimes loses its primary.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// Time limit of all attempts of one request.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Repeats a request until the store answers without an error.
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
