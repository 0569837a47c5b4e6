use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use shared::tool::ToolDefinition;

use crate::{
    catalog::{Catalog, CatalogTool},
    select::{Criterion, Selection, Tools},
};

/// Default limit of the tools from which a model's candidates come. The model may see fewer of
/// them.
pub const DEFAULT_MAX_TOOLS: usize = 64;
/// Default limit for the planner without a model. It can be high, because this planner reads 256
/// tools faster than the embedder reads the query.
pub const DEFAULT_OFFLINE_TOOLS: usize = 256;
const MAX_LISTED_CANDIDATES: usize = 256;

#[derive(Clone, Debug)]
pub struct Candidates {
    /// The candidates. Tools that cannot be planned are included, because messages name them.
    pub catalog: Catalog,
    pub report: Value,
}

struct Candidate {
    tool_index: usize,
    score: Option<f64>,
    learned: Option<f64>,
    is_kept: bool,
}

impl Candidates {
    pub fn new(
        catalog: &Catalog,
        tools: &Tools,
        selection: &Selection,
        by: Criterion,
        max_tools: usize,
    ) -> Self {
        let mut candidates: Vec<Candidate> = selection
            .matches
            .iter()
            .enumerate()
            .map(|(rank, found)| Candidate {
                tool_index: found.index,
                score: Some(found.score),
                learned: found.learned,
                is_kept: rank < max_tools,
            })
            .collect();
        let scored: BTreeSet<usize> =
            candidates.iter().map(|candidate| candidate.tool_index).collect();
        for tool_index in (0..tools.len()).filter(|tool_index| !scored.contains(tool_index)) {
            let is_kept = candidates.len() < max_tools;
            candidates.push(Candidate { tool_index, score: None, learned: None, is_kept });
        }
        let mut report = json!({
            "by": by.as_str(),
            "maxTools": max_tools,
            "candidates": list_candidates(catalog, tools, &candidates, max_tools),
        });
        let more = candidates.len().saturating_sub(MAX_LISTED_CANDIDATES.max(max_tools));
        if more > 0 {
            report["more"] = json!(more);
        }
        if let Some(reason) = &selection.without_meaning {
            report["withoutMeaning"] = json!(reason.to_string());
        }
        Self { catalog: keep_candidates(catalog, tools, &candidates), report }
    }
}

fn keep_candidates(catalog: &Catalog, tools: &Tools, candidates: &[Candidate]) -> Catalog {
    let dropped = candidates.iter().filter(|candidate| !candidate.is_kept);
    let dropped: BTreeSet<*const ToolDefinition> =
        dropped.map(|candidate| Arc::as_ptr(&tools[candidate.tool_index])).collect();
    if dropped.is_empty() {
        return catalog.clone();
    }
    catalog.filter_tools(|tool: &&CatalogTool| !dropped.contains(&Arc::as_ptr(&tool.definition)))
}

fn list_candidates(
    catalog: &Catalog,
    tools: &Tools,
    candidates: &[Candidate],
    max_tools: usize,
) -> Vec<Value> {
    let has_room = tools.len() <= max_tools;
    let reason = |rank: usize, candidate: &Candidate| match (candidate.is_kept, candidate.score) {
        (true, _) if has_room => {
            format!("all tools are kept, because there are at most {max_tools}")
        }
        (true, Some(_)) => format!("number {} of the {max_tools} that fit best", rank + 1),
        (true, None) => {
            format!("no word of the query fits it, but fewer than {max_tools} tools fit better")
        }
        (false, Some(_)) if max_tools == 1 => "1 tool fits better".to_owned(),
        (false, Some(_)) => format!("{max_tools} tools fit better"),
        (false, None) => "nothing in the query fits it".to_owned(),
    };
    let listed = candidates.iter().enumerate().take(MAX_LISTED_CANDIDATES.max(max_tools));
    let listed = listed.map(|(rank, candidate)| {
        let tool = catalog.shown(&tools[candidate.tool_index]);
        let mut entry =
            json!({ "tool": tool.as_str(), "score": candidate.score, "kept": candidate.is_kept });
        if let Some(learned) = candidate.learned {
            entry["learned"] = json!(learned);
        }
        entry["why"] = json!(reason(rank, candidate));
        entry
    });
    listed.collect()
}
