//! Every language that can be configured: what is said in it goes where it should, and what comes
//! back ends where it must.

use genai::adapter::AdapterKind;

use super::{
    super::super::{Message, Reply},
    *,
};

/// Every language, with the name of a model that can be asked in it.
fn kinds() -> impl Iterator<Item = (ProviderKind, &'static str)> {
    let models = |kind: &AdapterKind| match kind {
        AdapterKind::Vertex => vec!["gemini-m", "claude-m"],
        AdapterKind::Zai => vec!["m", "zai_coding::m"],
        AdapterKind::Baidu => vec!["m", "baidu-coding-openai::m", "baidu-coding-anthropic::m"],
        // By such a name it speaks like Anthropic.
        AdapterKind::OpenCodeGo => vec!["m", "minimax-m2.5"],
        _ => vec!["m"],
    };
    let all = AdapterKind::all().iter();
    all.flat_map(move |it| models(it).into_iter().map(|model| (ProviderKind(*it), model)))
}

/// What some want to hear before they are asked.
fn question() -> Question {
    let messages = vec![Message::User("Well?".to_owned())];
    Question { messages, ..Question::default() }
}

/// Asserts that an answer was broken off, and that it was one of this server, asked once.
fn assert_broken_off(answer: Result<Reply, ModelError>, sent: usize, of: &str) {
    let err = answer.map(|it| it.text.len()).unwrap_err();
    assert!(matches!(err, ModelError::Refused { .. }), "{of}: {err}");
    assert!(err.why().starts_with("its answer has more than 16 MB"), "{of}: {err}");
    assert!((ANSWER_BYTES..MOST).contains(&sent), "{of}: {sent}");
}

#[tokio::test]
async fn an_answer_is_broken_off_in_every_language() {
    for (kind, model) in kinds() {
        let mut running = JoinSet::new();
        let (at, sent) = endless(StatusCode::OK, &mut running).await;
        let answer = provider_of(kind, model, Some(at)).ask(&question()).await;
        assert_broken_off(
            answer,
            sent.load(Ordering::Relaxed),
            &format!("{} {model}", kind.name()),
        );
    }
}

#[tokio::test]
async fn a_list_of_models_is_broken_off_in_every_language() {
    for (kind, model) in kinds() {
        let mut running = JoinSet::new();
        let (at, sent) = endless(StatusCode::OK, &mut running).await;
        let (of, listed) = (kind.name(), provider_of(kind, model, Some(at)).is_listed().await);
        // Who has no list that could be asked for is not said to have the model.
        if listed == Ok(false) {
            assert_eq!(sent.load(Ordering::Relaxed), 0, "{of}");
            assert!(["cohere", "vertex", "bedrock_api"].contains(&of), "{of}");
            continue;
        }
        let err = listed.unwrap_err();
        assert!(err.why().starts_with("its answer has more than 16 MB"), "{of}: {err}");
    }
}
