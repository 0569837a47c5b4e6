use crate::suggest::did_you_mean;

use Format::{Anthropic, OpenAi};

const LOCAL_PROVIDER: &str = "local";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenAi,
    Anthropic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderKind {
    name: &'static str,
    pub(super) format: Format,
    /// The address before `chat/completions` or `messages`. Empty if each user or machine has
    /// another address.
    pub(super) base_url: &'static str,
    /// The variable that usually has the key. Empty if no key is needed.
    key_variable: &'static str,
}

#[rustfmt::skip]
const PROVIDERS: [ProviderKind; 32] = [
    provider_kind("openai", OpenAi, "https://api.openai.com/v1/", "OPENAI_API_KEY"),
    provider_kind("anthropic", Anthropic, "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY"),
    provider_kind("gemini", OpenAi, "https://generativelanguage.googleapis.com/v1beta/openai/", "GEMINI_API_KEY"),
    provider_kind("groq", OpenAi, "https://api.groq.com/openai/v1/", "GROQ_API_KEY"),
    provider_kind("ollama", OpenAi, "http://localhost:11434/v1/", ""),
    provider_kind(LOCAL_PROVIDER, OpenAi, "", ""),
    provider_kind("ollama_cloud", OpenAi, "https://ollama.com/v1/", "OLLAMA_API_KEY"),
    provider_kind("mistral", OpenAi, "https://api.mistral.ai/v1/", "MISTRAL_API_KEY"),
    provider_kind("deepseek", OpenAi, "https://api.deepseek.com/v1/", "DEEPSEEK_API_KEY"),
    provider_kind("cohere", OpenAi, "https://api.cohere.ai/compatibility/v1/", "COHERE_API_KEY"),
    provider_kind("xai", OpenAi, "https://api.x.ai/v1/", "XAI_API_KEY"),
    provider_kind("together", OpenAi, "https://api.together.xyz/v1/", "TOGETHER_API_KEY"),
    provider_kind("fireworks", OpenAi, "https://api.fireworks.ai/inference/v1/", "FIREWORKS_API_KEY"),
    provider_kind("open_router", OpenAi, "https://openrouter.ai/api/v1/", "OPEN_ROUTER_API_KEY"),
    provider_kind("vertex", OpenAi, "", "VERTEX_API_KEY"),
    provider_kind("bedrock_api", OpenAi, "", "BEDROCK_API_KEY"),
    provider_kind("kimi", OpenAi, "https://api.moonshot.ai/v1/", "KIMI_API_KEY"),
    provider_kind("moonshot", OpenAi, "https://api.moonshot.cn/v1/", "MOONSHOT_API_KEY"),
    provider_kind("minimax", Anthropic, "https://api.minimax.io/anthropic/v1/", "MINIMAX_API_KEY"),
    provider_kind("zai", OpenAi, "https://api.z.ai/api/paas/v4/", "ZAI_API_KEY"),
    provider_kind("bigmodel", OpenAi, "https://open.bigmodel.cn/api/paas/v4/", "BIGMODEL_API_KEY"),
    provider_kind("aliyun", OpenAi, "https://dashscope.aliyuncs.com/compatible-mode/v1/", "ALIYUN_API_KEY"),
    provider_kind("qwen_cloud", OpenAi, "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/", "QWEN_CLOUD_API_KEY"),
    provider_kind("baidu", OpenAi, "https://qianfan.baidubce.com/v2/", "BAIDU_API_KEY"),
    provider_kind("nebius", OpenAi, "https://api.studio.nebius.ai/v1/", "NEBIUS_API_KEY"),
    provider_kind("mimo", OpenAi, "https://api.mimo.com/openai/v1/", "MIMO_API_KEY"),
    provider_kind("aihubmix", OpenAi, "https://aihubmix.com/v1/", "AIHUBMIX_API_KEY"),
    provider_kind("atlascloud", OpenAi, "https://api.atlascloud.ai/v1/", "ATLASCLOUD_API_KEY"),
    provider_kind("requesty", OpenAi, "https://router.requesty.ai/v1/", "REQUESTY_API_KEY"),
    provider_kind("github_copilot", OpenAi, "https://models.github.ai/inference/", "GITHUB_TOKEN"),
    provider_kind("opencode_go", OpenAi, "https://opencode.ai/zen/go/v1/", "OPENCODE_GO_API_KEY"),
    provider_kind("omlx", OpenAi, "http://127.0.0.1:8000/v1/", "OMLX_API_KEY"),
];

const fn provider_kind(
    name: &'static str,
    format: Format,
    base_url: &'static str,
    key_variable: &'static str,
) -> ProviderKind {
    ProviderKind { name, format, base_url, key_variable }
}

impl ProviderKind {
    pub(super) const ALL: &'static [Self] = &PROVIDERS;

    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|kind| kind.name)
    }

    /// Returns the provider with a name, such as `openai`. If no provider has the name, the error
    /// suggests a similar name or lists all names.
    pub fn find_by_name(name: &str) -> Result<Self, String> {
        if let Some(found) = Self::ALL.iter().find(|kind| kind.name == name) {
            return Ok(*found);
        }
        let help = did_you_mean(name, Self::names()).unwrap_or_else(|| {
            let all: Vec<String> = Self::names().map(|name| format!("`{name}`")).collect();
            format!(
                "there are {}; for a server with the API of one of them, often `openai`, set \
                 `base_url`",
                all.join(", ")
            )
        });
        Err(format!("there is no provider `{name}`: {help}"))
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    pub fn is_local(self) -> bool {
        self.name == LOCAL_PROVIDER
    }

    pub(super) fn has_grammars(self) -> bool {
        [LOCAL_PROVIDER, "ollama"].contains(&self.name)
    }

    /// Returns the variable that usually has the key of this provider, if it needs a key.
    pub fn default_key_variable(self) -> Option<&'static str> {
        (!self.key_variable.is_empty()).then_some(self.key_variable)
    }
}
