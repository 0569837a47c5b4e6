//! Which language a provider is spoken to in, and where.
//!
//! For nearly all that is what `genai` has under their names. What it has for `zai` and `baidu`
//! sends a question to an address of its own, whatever address it is given: neither `base_url` nor
//! the limit of an answer would hold. Both imitate others, and are spoken to like those.

use genai::{adapter::AdapterKind, resolver::Endpoint};

/// One that speaks as `OpenAI` does, and adds nothing to it.
const IMITATOR: AdapterKind = AdapterKind::BigModel;
/// Providers that `genai` would send to where it likes: the beginnings of their models' names, what
/// they speak then, and where. Of each provider the last has no such beginning.
const STRAYING: [(AdapterKind, &str, AdapterKind, &str); 5] = [
    (AdapterKind::Zai, "zai_coding::", IMITATOR, "https://api.z.ai/api/coding/paas/v4/"),
    (AdapterKind::Zai, "", IMITATOR, "https://api.z.ai/api/paas/v4/"),
    (
        AdapterKind::Baidu,
        "baidu-coding-anthropic::",
        AdapterKind::Anthropic,
        "https://qianfan.baidubce.com/anthropic/coding/",
    ),
    (
        AdapterKind::Baidu,
        "baidu-coding-openai::",
        IMITATOR,
        "https://qianfan.baidubce.com/v2/coding/",
    ),
    (AdapterKind::Baidu, "", IMITATOR, "https://qianfan.baidubce.com/v2/"),
];

/// Returns what a provider is spoken to in about a model, and where it is, if `genai` is not to
/// know that.
pub(super) fn language(provider: AdapterKind, model: &str) -> (AdapterKind, Option<Endpoint>) {
    let mut straying = STRAYING.into_iter();
    match straying.find(|(it, begin, ..)| *it == provider && model.starts_with(begin)) {
        Some((_, _, spoken, place)) => (spoken, Some(Endpoint::from_static(place))),
        None => (provider, None),
    }
}

/// Returns whether a provider is asked for the list of its models. Of the others `genai` knows some
/// by heart, which says nothing about whether they answer.
pub(super) fn has_list(spoken: AdapterKind) -> bool {
    !matches!(spoken, AdapterKind::Cohere | AdapterKind::Vertex | AdapterKind::BedrockApi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_be_sent_elsewhere_is_spoken_to_like_whom_it_imitates() {
        for (provider, model, spoken, place) in [
            (AdapterKind::OpenAI, "gpt-4.1", AdapterKind::OpenAI, None),
            (AdapterKind::Zai, "glm-4.6", IMITATOR, Some("https://api.z.ai/api/paas/v4/")),
            (
                AdapterKind::Zai,
                "zai_coding::glm-4.6",
                IMITATOR,
                Some("https://api.z.ai/api/coding/paas/v4/"),
            ),
            (AdapterKind::Baidu, "ERNIE", IMITATOR, Some("https://qianfan.baidubce.com/v2/")),
            (
                AdapterKind::Baidu,
                "baidu-coding-anthropic::m",
                AdapterKind::Anthropic,
                Some("https://qianfan.baidubce.com/anthropic/coding/"),
            ),
        ] {
            let (found, at) = language(provider, model);
            let at = at.as_ref().map(Endpoint::base_url);
            assert_eq!((found, at), (spoken, place), "{provider} {model}");
        }
    }
}
