//! A model that is asked again where that may help.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{Model, ModelError, Question, Reply};

/// How often, and after how long, a question is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often it is asked again.
    pub retries: u32,
    /// The wait before the first of these; twice as long before each further one.
    pub pause: Duration,
    /// The longest wait. A model that wants to be left alone for longer is given up.
    pub longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            retries: super::settings::RETRIES,
            pause: Duration::from_millis(500),
            longest: Duration::from_mins(1),
        }
    }
}

/// A model that is asked again where that may help.
#[derive(Debug)]
pub struct Patient {
    model: Arc<dyn Model>,
    patience: Patience,
}

impl Patient {
    /// Makes a model patient.
    pub fn new(model: Arc<dyn Model>, patience: Patience) -> Self {
        Self { model, patience }
    }
}

#[async_trait]
impl Model for Patient {
    fn name(&self) -> &str {
        self.model.name()
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let Patience { retries, mut pause, longest } = self.patience;
        let mut missed = Vec::new();
        loop {
            let err = match self.model.ask(question).await {
                Ok(reply) => {
                    missed.extend(reply.missed);
                    return Ok(Reply { missed, ..reply });
                }
                Err(err) => err,
            };
            let ModelError::Unavailable { model, why, wait } = &err else { return Err(err) };
            let next = wait.unwrap_or(pause);
            if missed.len() >= retries as usize || next > longest {
                return Err(given_up(model, why, missed.len() + 1, next > longest, *wait));
            }
            tracing::debug!(%model, %why, "the model is asked again");
            missed.push(err);
            sleep(next).await;
            pause = (pause * 2).min(longest);
        }
    }
}

fn given_up(
    model: &str,
    why: &str,
    tries: usize,
    is_too_long: bool,
    wait: Option<Duration>,
) -> ModelError {
    let often = match tries {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let alone = match wait.filter(|_| is_too_long) {
        Some(wait) => format!(", and wants to be left alone for {} s", wait.as_secs()),
        None => String::new(),
    };
    ModelError::Unavailable { model: model.to_owned(), why: format!("{why}{often}{alone}"), wait }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{
        super::scripted::{Scripted, busy, refused, says},
        *,
    };

    async fn ask(
        script: Vec<Result<Reply, ModelError>>,
        retries: u32,
    ) -> (Result<Reply, ModelError>, Duration, usize) {
        let scripted = Arc::new(Scripted::new(script));
        let patience = Patience { retries, ..Patience::default() };
        let model = Patient::new(Arc::clone(&scripted) as _, patience);
        let started = Instant::now();
        let answer = model.ask(&Question::default()).await;
        (answer, started.elapsed(), scripted.asked().len())
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_longer_each_time() {
        let script = vec![busy(None), busy(None), says("well")];
        let (answer, took, asked) = ask(script, 3).await;
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_str(), answer.missed.len()), ("well", 2));
        assert_eq!((took, asked), (Duration::from_millis(1_500), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_as_long_as_it_is_told() {
        let (answer, took, _) = ask(vec![busy(Some(7)), says("well")], 3).await;
        assert!(answer.is_ok());
        assert_eq!(took, Duration::from_secs(7));
        let (answer, took, asked) = ask(vec![busy(Some(600)), says("well")], 3).await;
        let why = answer.unwrap_err().to_string();
        assert_eq!(
            why,
            "the model `scripted` is not available: busy, and wants to be left alone for 600 s"
        );
        assert_eq!((took, asked), (Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_up() {
        let script = vec![busy(None), busy(None), busy(None), says("never asked")];
        let (answer, _, asked) = ask(script, 2).await;
        let why = answer.unwrap_err().to_string();
        assert_eq!(why, "the model `scripted` is not available: busy, 3 times");
        assert_eq!(asked, 3);
        let (answer, took, asked) = ask(vec![refused(), says("never asked")], 2).await;
        assert!(matches!(answer, Err(ModelError::Refused { .. })));
        assert_eq!((took, asked), (Duration::ZERO, 1), "asking again is no use");
    }
}
