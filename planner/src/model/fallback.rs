use std::sync::Arc;

use async_trait::async_trait;

use super::{Model, ModelError, Question, Reply};

#[derive(Debug)]
pub struct Fallback {
    first: Arc<dyn Model>,
    second: Arc<dyn Model>,
}

impl Fallback {
    pub fn new(first: Arc<dyn Model>, second: Arc<dyn Model>) -> Self {
        Self { first, second }
    }
}

#[async_trait]
impl Model for Fallback {
    fn name(&self) -> &str {
        self.first.name()
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let first = match self.first.ask(question).await {
            Ok(reply) => return Ok(reply),
            Err(err) => err,
        };
        let instead = self.second.name();
        tracing::warn!(err = %first, instead, "the model does not answer");
        match self.second.ask(question).await {
            Ok(mut reply) => {
                reply.missed.insert(0, first);
                Ok(reply)
            }
            Err(second) => Err(join_errors(&first, &second)),
        }
    }
}

/// Joins two errors. The joined error is temporary if the first or the second error is temporary.
fn join_errors(first: &ModelError, second: &ModelError) -> ModelError {
    let (model, reason) = (first.model().to_owned(), format!("{}; {second}", first.reason()));
    match (first, second) {
        (ModelError::Refused { .. }, ModelError::Refused { .. }) => {
            ModelError::Refused { model, reason }
        }
        _ => ModelError::Unavailable { model, reason, wait: None },
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::scripted::{Scripted, busy, refused, reply_with},
        *,
    };

    #[tokio::test]
    async fn the_fallback_answers_after_a_failure() {
        for (first, second, expected) in [
            (reply_with("one"), reply_with("two"), Ok(("one", 0))),
            (busy(None), reply_with("two"), Ok(("two", 1))),
            (refused(), reply_with("two"), Ok(("two", 1))),
            (
                busy(None),
                refused(),
                Err(
                    "the model `scripted` is not available: busy; the model `scripted` cannot be used: no",
                ),
            ),
            (
                refused(),
                refused(),
                Err(
                    "the model `scripted` cannot be used: no; the model `scripted` cannot be used: no",
                ),
            ),
        ] {
            let model = |answer| Arc::new(Scripted::new(vec![answer])) as Arc<dyn Model>;
            let answer = Fallback::new(model(first), model(second)).ask(&Question::default()).await;
            let answer =
                answer.map(|reply| (reply.text, reply.missed.len())).map_err(|err| err.to_string());
            let expected = expected.map(|(text, n)| (text.to_owned(), n)).map_err(str::to_owned);
            assert_eq!(answer, expected);
        }
    }
}
