//! Which tools a planner is shown: those that may be planned, of them those around the actions that
//! were asked for, of them those that fit the query best.

use std::{collections::BTreeSet, sync::Arc};

use planner::{
    catalog::{Catalog, CatalogTool},
    select::{Ask, Criterion, Tools},
};
use serde_json::{Value, json};
use shared::tool::ToolDefinition;

use super::{Engine, SELECTED, select::Among};

/// The most tools that a planner is shown where nothing else is said.
pub(super) const MAX_TOOLS: usize = 64;
/// The most candidates that the transcript tells one by one.
const TOLD: usize = 256;

/// The tools that a planner is shown, and why these.
pub(super) struct Candidates {
    /// The tools.
    pub(super) catalog: Catalog,
    /// Every candidate, for the transcript: its score, and why it was kept or dropped.
    pub(super) told: Value,
}

/// A tool that may be planned, and how well it fits.
struct Candidate {
    at: usize,
    score: Option<f64>,
    /// What executions have taught of it for such queries.
    learned: Option<f64>,
    is_kept: bool,
}

impl Engine {
    /// Chooses at most `most` of the tools that may be planned.
    ///
    /// Where there is room for all of them, all are kept, in their order, and only words are asked:
    /// nobody waits for a model whose answer changes nothing.
    pub(super) async fn candidates(
        &self,
        query: &str,
        catalog: &Catalog,
        most: usize,
    ) -> Candidates {
        let tools: Tools = catalog.plannable().cloned().collect();
        let by = if tools.len() > most { Criterion::Hybrid } else { Criterion::Lexical };
        let limit = tools.len().min(SELECTED);
        let lessons = if by == Criterion::Hybrid { self.taught().await } else { None };
        let taught = lessons.as_deref().map(|it| (&it.outcomes, self.clock.now()));
        let ask = Ask { query, by, limit, margin: 0.0, taught };
        let selected = self.choose(Among::Planning, &tools, &ask, |_| true).await;
        let selection = selected.unwrap_or_default();
        let mut candidates: Vec<Candidate> = selection
            .matches
            .iter()
            .enumerate()
            .map(|(place, it)| Candidate {
                at: it.at,
                score: Some(it.score),
                learned: it.learned,
                is_kept: place < most,
            })
            .collect();
        let scored: BTreeSet<usize> = candidates.iter().map(|it| it.at).collect();
        for at in (0..tools.len()).filter(|it| !scored.contains(it)) {
            let is_kept = candidates.len() < most;
            candidates.push(Candidate { at, score: None, learned: None, is_kept });
        }
        let without_meaning = selection.without_meaning.map(|it| it.to_string());
        let told = told((catalog, &tools), &candidates, (by, most), without_meaning);
        Candidates { catalog: kept(catalog, &tools, &candidates), told }
    }
}

/// Leaves out the tools that were dropped. What cannot be planned stays, to be named in messages.
fn kept(catalog: &Catalog, tools: &Tools, candidates: &[Candidate]) -> Catalog {
    let dropped: BTreeSet<*const ToolDefinition> =
        candidates.iter().filter(|it| !it.is_kept).map(|it| Arc::as_ptr(&tools[it.at])).collect();
    if dropped.is_empty() {
        return catalog.clone();
    }
    let stays = |it: &&CatalogTool| !dropped.contains(&Arc::as_ptr(&it.definition));
    catalog.filtered(stays)
}

fn told(
    (catalog, tools): (&Catalog, &Tools),
    candidates: &[Candidate],
    (by, most): (Criterion, usize),
    without_meaning: Option<String>,
) -> Value {
    let has_room = tools.len() <= most;
    let why = |place: usize, it: &Candidate| match (it.is_kept, it.score) {
        (true, _) if has_room => "there is room for every tool".to_owned(),
        (true, Some(_)) => format!("number {} of the {most} that fit best", place + 1),
        (true, None) => "there is room left".to_owned(),
        (false, Some(_)) if most == 1 => "1 tool fits better".to_owned(),
        (false, Some(_)) => format!("{most} tools fit better"),
        (false, None) => "nothing in the query fits it".to_owned(),
    };
    let listed = candidates.iter().enumerate().take(TOLD.max(most));
    let listed: Vec<Value> = listed
        .map(|(place, it)| {
            let tool = catalog.shown(&tools[it.at]);
            let mut told = json!({ "tool": tool.as_str(), "score": it.score, "kept": it.is_kept });
            if let Some(learned) = it.learned {
                told["learned"] = json!(learned);
            }
            told["why"] = json!(why(place, it));
            told
        })
        .collect();
    let more = candidates.len() - listed.len();
    let mut told = json!({ "by": by.as_str(), "maxTools": most, "candidates": listed });
    if more > 0 {
        told["more"] = json!(more);
    }
    if let Some(why) = without_meaning {
        told["withoutMeaning"] = json!(why);
    }
    told
}
