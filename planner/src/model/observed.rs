use std::sync::Arc;

use async_trait::async_trait;
use shared::{
    metrics::{ModelUsage, process_metrics},
    trace::{OpenSpan, SpanKind, current_scope, with_scope},
};

use super::{Model, ModelError, Question, Reply};

/// A model whose questions are counted. Each attempt counts, so the model that retries wraps this
/// model.
#[derive(Debug)]
pub(super) struct ObservedModel {
    model: Arc<dyn Model>,
    name: String,
    provider: &'static str,
}

impl ObservedModel {
    pub(super) fn new(model: Arc<dyn Model>, name: String, provider: &'static str) -> Self {
        Self { model, name, provider }
    }

    fn requested_name(&self) -> String {
        let name = self.name.split_once('/').map_or(self.name.as_str(), |(_, name)| name);
        name.to_owned()
    }
}

#[async_trait]
impl Model for ObservedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let span = OpenSpan::start(format!("chat {}", self.requested_name()), SpanKind::Client);
        let scope = span.as_ref().map(OpenSpan::scope).or_else(current_scope);
        let answer = with_scope(scope, self.model.ask(question)).await;
        let usage = answer.as_ref().ok().map(|reply| ModelUsage {
            input_tokens: reply.tokens.input,
            output_tokens: reply.tokens.output,
            cost: reply.cost,
        });
        process_metrics().count_model_request(&self.name, usage);
        if let Some(mut span) = span {
            span.set("gen_ai.operation.name", "chat");
            span.set("gen_ai.provider.name", self.provider);
            span.set("gen_ai.request.model", self.requested_name());
            if let Ok(reply) = &answer {
                span.set("gen_ai.response.model", reply.model.clone());
                span.set("gen_ai.usage.input_tokens", reply.tokens.input);
                span.set("gen_ai.usage.output_tokens", reply.tokens.output);
            }
            span.finish(answer.as_ref().err().map(error_type));
        }
        answer
    }
}

fn error_type(err: &ModelError) -> &'static str {
    match err {
        ModelError::Unavailable { .. } => "unavailable",
        ModelError::Refused { .. } => "refused",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use shared::trace::{FinishedSpan, Scope, SpanContext, SpanSink, TraceId};

    use super::{
        super::scripted::{Scripted, busy, reply_with},
        *,
    };

    #[derive(Debug, Default)]
    struct KeptSpans(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for KeptSpans {
        fn is_sampled(&self, _: TraceId, _: Option<bool>) -> bool {
            true
        }

        fn send_span(&self, span: FinishedSpan) {
            self.0.lock().unwrap().push(span);
        }
    }

    #[tokio::test]
    async fn each_question_is_a_span_below_the_current_one() {
        let sink = Arc::new(KeptSpans::default());
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let caller = SpanContext::parse(parent, None).unwrap();
        let scripted = Arc::new(Scripted::new(vec![busy(None), reply_with("yes")]));
        let model = ObservedModel::new(scripted, "openai/a-model".to_owned(), "openai");
        let scope = Scope::of_caller(caller.clone(), Some(Arc::clone(&sink) as _));
        let answers = with_scope(Some(scope), async {
            let question = Question::default();
            [model.ask(&question).await.is_ok(), model.ask(&question).await.is_ok()]
        });
        assert_eq!(answers.await, [false, true]);
        let spans = sink.0.lock().unwrap();
        let seen = spans.iter().map(|span| (&*span.name, span.parent, span.error.as_deref()));
        let parent = Some(caller.span);
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [("chat a-model", parent, Some("unavailable")), ("chat a-model", parent, None)]
        );
        assert_ne!(spans[0].context.span, spans[1].context.span);
        let text = process_metrics().render();
        for outcome in ["answered", "failed"] {
            let line = format!(
                "faber_model_requests_total{{model=\"openai/a-model\",outcome=\"{outcome}\"}} 1"
            );
            assert!(text.contains(&line), "{line}: {text}");
        }
    }
}
