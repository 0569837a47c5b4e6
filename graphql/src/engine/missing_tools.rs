//! Tools that a plan needs and that this process lacks.

use std::collections::BTreeSet;

use shared::id::ToolName;
use toolbox::Found;

use super::Engine;

/// A tool that this process lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTool {
    /// The tool.
    pub tool: ToolName,
    /// Why its toolset could not be asked, if it is configured.
    pub failure: Option<String>,
}

impl Engine {
    /// Returns which of these tools this process lacks. It waits for the toolsets that may have
    /// them as long as connecting may take. A tool that is switched off is not missing.
    pub async fn missing_tools(&self, tools: BTreeSet<ToolName>) -> Vec<MissingTool> {
        let names: Vec<ToolName> = tools.into_iter().collect();
        self.certain(&names).await;
        let missing = names.into_iter().filter(|name| !self.toolbox.has_all([name]));
        missing
            .map(|tool| match self.toolbox.find(&tool) {
                Found::Failed { set, error } => MissingTool {
                    tool,
                    failure: Some(format!("the toolset `{set}` failed: {error}")),
                },
                _ => MissingTool { tool, failure: None },
            })
            .collect()
    }
}
