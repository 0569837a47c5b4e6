use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{Model, ModelError, Question, Reply, Stop, Tokens};

#[derive(Debug, Default)]
pub(crate) struct Scripted {
    answers: Mutex<VecDeque<Result<Reply, ModelError>>>,
    questions: Mutex<Vec<Question>>,
}

impl Scripted {
    pub(crate) fn new(answers: Vec<Result<Reply, ModelError>>) -> Self {
        Self { answers: Mutex::new(answers.into()), questions: Mutex::default() }
    }

    pub(crate) fn asked(&self) -> Vec<Question> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).push(question.clone());
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        answer.unwrap_or_else(refused)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "scripts list answers beside errors")]
pub(crate) fn reply_with(text: &str) -> Result<Reply, ModelError> {
    Ok(Reply {
        text: text.to_owned(),
        calls: Vec::new(),
        stop: Stop::End,
        tokens: Tokens { input: 10, output: 2 },
        cost: None,
        model: "scripted".to_owned(),
        missed: Vec::new(),
    })
}

pub(crate) fn busy(seconds: Option<u64>) -> Result<Reply, ModelError> {
    let wait = seconds.map(Duration::from_secs);
    Err(ModelError::Unavailable { model: "scripted".to_owned(), reason: "busy".to_owned(), wait })
}

pub(crate) fn refused() -> Result<Reply, ModelError> {
    Err(ModelError::Refused { model: "scripted".to_owned(), reason: "no".to_owned() })
}
