//! Answers in form, each asked for in the way of its provider.

use genai::{
    adapter::AdapterKind,
    chat::{ChatOptions, JsonSpec},
};
use serde_json::json;

use super::{super::AnswerForm, Provider};

impl Provider {
    /// Returns how an answer is asked for.
    pub(super) fn options(&self, form: Option<&AnswerForm>) -> ChatOptions {
        let mut options = ChatOptions::default().with_normalize_reasoning_content(true);
        options.max_tokens = self.settings.max_tokens;
        options.temperature = self.settings.temperature;
        let Some(form) = form else { return options };
        match self.kind {
            AdapterKind::Gemini | AdapterKind::Vertex => {
                options.with_response_format(JsonSpec::new(form.name, form.schema.clone()))
            }
            AdapterKind::Ollama | AdapterKind::OllamaCloud | AdapterKind::OpenAIResp => {
                options.with_response_format(genai::chat::ChatResponseFormat::JsonMode)
            }
            // Their forms have no room for parameters that only a tool's own schema knows.
            AdapterKind::Anthropic
            | AdapterKind::MiniMax
            | AdapterKind::Cohere
            | AdapterKind::BedrockApi
            | AdapterKind::GeminiIx
            | AdapterKind::GithubCopilot => options,
            // `genai` always asks for the strict form, which has no such room either.
            _ => options.with_extra_body(json!({ "response_format": {
                "type": "json_schema",
                "json_schema": { "name": form.name, "strict": false, "schema": form.schema },
            } })),
        }
    }
}

/// Returns the word by which a provider shows that it refuses to keep answers in form.
pub(super) fn about_form(said: &str) -> Option<&'static str> {
    ["response_format", "json_schema", "response_schema", "responseJsonSchema", "text.format"]
        .into_iter()
        .find(|it| said.contains(it))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::provider, *};

    #[test]
    fn forms_are_asked_for_in_the_way_of_the_provider() {
        let form = AnswerForm { name: "plan", schema: json!({ "type": "object" }) };
        let mut provider = provider();
        let openai = provider.options(Some(&form));
        assert_eq!(openai.extra_body.unwrap()["response_format"]["json_schema"]["strict"], false);
        provider.kind = AdapterKind::Gemini;
        assert!(provider.options(Some(&form)).response_format.is_some());
        provider.kind = AdapterKind::Anthropic;
        let anthropic = provider.options(Some(&form));
        assert!(anthropic.response_format.is_none() && anthropic.extra_body.is_none());
    }
}
