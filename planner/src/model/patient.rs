use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{Model, ModelError, Question, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRetryPolicy {
    pub retries: u32,
    /// The wait before the first retry. It doubles with each retry. Each wait is shortened by up to
    /// half at random, so that clients that failed together do not retry together.
    pub pause: Duration,
    /// The longest wait. If a provider asks for a longer wait, the question fails.
    pub max_pause: Duration,
}

impl Default for ModelRetryPolicy {
    fn default() -> Self {
        Self {
            retries: super::settings::DEFAULT_RETRIES,
            pause: Duration::from_millis(500),
            max_pause: Duration::from_mins(1),
        }
    }
}

#[derive(Debug)]
pub struct RetryingModel {
    model: Arc<dyn Model>,
    retry_policy: ModelRetryPolicy,
    random_state: AtomicU64,
}

impl RetryingModel {
    pub fn new(model: Arc<dyn Model>, retry_policy: ModelRetryPolicy) -> Self {
        Self::with_seed(model, retry_policy, RandomState::new().hash_one(0))
    }

    pub fn with_seed(model: Arc<dyn Model>, retry_policy: ModelRetryPolicy, seed: u64) -> Self {
        Self { model, retry_policy, random_state: AtomicU64::new(seed) }
    }

    fn random_part(&self, of: Duration) -> Duration {
        // Uses Knuth's multiplier. The upper bits of its results are random enough.
        let step = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let rolled =
            self.random_state
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(step(state)));
        let rolled = step(rolled.unwrap_or_default()) >> 54;
        let share = u32::try_from(rolled).unwrap_or_default();
        of / 2 + of / 2 * share / 1_024
    }
}

#[async_trait]
impl Model for RetryingModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let ModelRetryPolicy { retries, mut pause, max_pause } = self.retry_policy;
        let mut missed = Vec::new();
        loop {
            let err = match self.model.ask(question).await {
                Ok(reply) => {
                    missed.extend(reply.missed);
                    return Ok(Reply { missed, ..reply });
                }
                Err(err) => err,
            };
            let ModelError::Unavailable { model, reason, wait } = &err else { return Err(err) };
            // Adds a random part, because clients that failed at the same time would otherwise
            // retry at the same time.
            let part = self.random_part(pause);
            let next = wait.map_or(part, |wait| wait.saturating_add(pause.saturating_sub(part)));
            let is_too_long = wait.is_some_and(|wait| wait > max_pause);
            if missed.len() >= retries as usize || is_too_long {
                return Err(retries_exhausted_error(
                    model,
                    reason,
                    missed.len() + 1,
                    is_too_long,
                    *wait,
                ));
            }
            tracing::debug!(%model, why = %reason, "the model is asked again");
            missed.push(err);
            sleep(next).await;
            pause = (pause * 2).min(max_pause);
        }
    }
}

fn retries_exhausted_error(
    model: &str,
    reason: &str,
    tries: usize,
    is_too_long: bool,
    wait: Option<Duration>,
) -> ModelError {
    let attempts = match tries {
        1 => String::new(),
        n => format!(" (tried {n} times)"),
    };
    let pause = match wait.filter(|_| is_too_long) {
        Some(wait) => format!("; it asks for a pause of {} s", wait.as_secs()),
        None => String::new(),
    };
    ModelError::Unavailable {
        model: model.to_owned(),
        reason: format!("{reason}{attempts}{pause}"),
        wait,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{
        super::scripted::{Scripted, busy, refused, reply_with},
        *,
    };

    async fn ask_with_retries(
        script: Vec<Result<Reply, ModelError>>,
        retries: u32,
    ) -> (Result<Reply, ModelError>, Duration, usize) {
        let scripted = Arc::new(Scripted::new(script));
        let retry_policy = ModelRetryPolicy { retries, ..ModelRetryPolicy::default() };
        let model = RetryingModel::with_seed(Arc::clone(&scripted) as _, retry_policy, 7);
        let started = Instant::now();
        let answer = model.ask(&Question::default()).await;
        (answer, started.elapsed(), scripted.asked().len())
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_grows_with_each_retry() {
        let script = vec![busy(None), busy(None), reply_with("well")];
        let (answer, took, ask_count) = ask_with_retries(script, 3).await;
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_str(), answer.missed.len()), ("well", 2));
        assert_eq!(ask_count, 3);
        let (minimum, maximum) = (Duration::from_millis(750), Duration::from_millis(1_500));
        assert!(minimum <= took && took <= maximum, "{took:?}");
        let again = ask_with_retries(vec![busy(None), busy(None), reply_with("well")], 3).await;
        assert_eq!(again.1, took, "the same seed gives the same waits");
    }

    #[test]
    fn a_wait_is_random_between_half_and_all_of_it() {
        let whole = Duration::from_secs(1);
        let part = |seed: u64| {
            let model = Arc::new(Scripted::default());
            RetryingModel::with_seed(model, ModelRetryPolicy::default(), seed).random_part(whole)
        };
        let patient =
            RetryingModel::with_seed(Arc::new(Scripted::default()), ModelRetryPolicy::default(), 1);
        let parts: Vec<Duration> = (0..1_000).map(|_| patient.random_part(whole)).collect();
        assert!(parts.iter().all(|part| (whole / 2..=whole).contains(part)));
        for part in [parts, (0..1_000).map(part).collect()] {
            let early = part.iter().filter(|part| **part < whole * 3 / 4).count();
            assert!((400..600).contains(&early), "{early} of 1000 are in the first half of it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_waits_as_long_as_the_provider_asks() {
        let (answer, took, _) = ask_with_retries(vec![busy(Some(7)), reply_with("well")], 3).await;
        assert!(answer.is_ok());
        let (minimum, maximum) = (Duration::from_secs(7), Duration::from_millis(7_250));
        assert!(minimum <= took && took <= maximum, "{took:?}");
        let (answer, took, ask_count) =
            ask_with_retries(vec![busy(Some(600)), reply_with("well")], 3).await;
        let error = answer.unwrap_err().to_string();
        assert_eq!(
            error,
            "the model `scripted` is not available: busy; it asks for a pause of 600 s"
        );
        assert_eq!((took, ask_count), (Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_fails_after_the_last_retry() {
        let script = vec![busy(None), busy(None), busy(None), reply_with("never asked")];
        let (answer, _, ask_count) = ask_with_retries(script, 2).await;
        let error = answer.unwrap_err().to_string();
        assert_eq!(error, "the model `scripted` is not available: busy (tried 3 times)");
        assert_eq!(ask_count, 3);
        let (answer, took, ask_count) =
            ask_with_retries(vec![refused(), reply_with("never asked")], 2).await;
        assert!(matches!(answer, Err(ModelError::Refused { .. })));
        assert_eq!((took, ask_count), (Duration::ZERO, 1), "another attempt is useless");
    }
}
