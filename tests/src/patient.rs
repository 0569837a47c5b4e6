//! Asking what may be away for a moment: on a busy machine a database loses its primary, too.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// How long it may be away.
const AWAY: Duration = Duration::from_mins(1);
/// The wait before it is asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// Asks until there is an answer.
///
/// # Panics
///
/// If there is none for too long.
pub async fn insist<T, E: Display>(ask: impl AsyncFn() -> Result<T, E>) -> T {
    let deadline = Instant::now() + AWAY;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(err) => assert!(Instant::now() < deadline, "no answer: {err}"),
        }
        sleep(AGAIN).await;
    }
}
