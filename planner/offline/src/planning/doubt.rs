//! Whether a draft is what was meant: what is certain, and what is not sure enough to offer.

use serde_json::Value;

use super::{
    super::{
        broad::{self, Broad, Part},
        clause::Clause,
        explain::Problem,
        fill::Filled,
        property::Role,
        scan,
        token::Kind,
        words::{self, Family},
    },
    Planning,
};
use planner::draft::DraftStep;

/// How much of what a query says a plan must explain that only looks.
const EXPLAINED: f32 = 0.25;
/// The same, where the calls take nothing or do something.
const WHOLLY: f32 = 0.6;
/// How sure each call must be that does something.
const CAREFUL: f32 = 0.4;

impl Planning<'_> {
    /// Returns a text for a tool that acts into which more ran than its value: a code and what comes
    /// behind it, a day, or what is to be done next.
    pub(super) fn run_on(&self, clause: &Clause, tool: usize, filled: &Filled) -> Option<String> {
        let profile = &self.profiles[tool];
        if !profile.acts() {
            return None;
        }
        let texts = profile.properties.iter().filter(|it| it.role == Role::Text);
        let is_quoted =
            |text: &str| clause.tokens.iter().any(|it| it.kind == Kind::Quoted && it.value == text);
        let is_over = |text: &&str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let is_code = words.first().is_some_and(|it| {
                it.bytes().any(|it| it.is_ascii_digit())
                    && it.bytes().any(|it| it.is_ascii_alphabetic())
            });
            let is_more = |it: &&str| *it == "then" || scan::words_for_days(&it.to_lowercase());
            words.len() > 1 && (is_code || words.iter().any(is_more))
        };
        texts
            .filter_map(|it| filled.parameters.get(&it.name)?.as_str())
            .filter(|it| !it.starts_with("{{") && !is_quoted(it))
            .find(is_over)
            .map(str::to_owned)
    }

    /// Returns whether a text of one thing reads like several: `Paris, London and Berlin`.
    pub(super) fn is_listed(&self, clause: &Clause, tool: usize, filled: &Filled) -> bool {
        let is_quoted =
            |text: &str| clause.tokens.iter().any(|it| it.kind == Kind::Quoted && it.value == text);
        let texts = self.profiles[tool].properties.iter().filter(|it| it.role == Role::Text);
        texts
            .filter_map(|it| filled.parameters.get(&it.name)?.as_str())
            .filter(|it| !it.starts_with("{{") && !is_quoted(it))
            .any(|text| {
                let items: Vec<&str> = text
                    .split([',', '&'])
                    .flat_map(|it| it.split(" and "))
                    .flat_map(|it| it.split(" or "))
                    .map(str::trim)
                    .collect();
                let is_name = |it: &&str| it.starts_with(char::is_uppercase);
                items.len() > 1
                    && items.iter().all(|it| !it.is_empty())
                    && (items.iter().all(is_name) || !items.iter().any(is_name))
            })
    }

    /// Returns whether grammar alone says what to do, or certainly says that it cannot be done.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_plan() && !self.is_loose() || self.is_final()
    }

    /// Returns whether there is a plan that leaves nothing out.
    pub(crate) fn is_plan(&self) -> bool {
        self.problems.is_empty()
            && !self.warnings.iter().any(|it| it.code == "plan.ignored_words")
            && self.steps.iter().all(|it| it.1.parameters.as_ref().is_none_or(is_clean))
            && !self.has_listed
    }

    /// Returns whether it calls the tools of another, as often.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.iter().all(|it| other.tools.contains(it))
            && other.tools.iter().all(|it| self.tools.contains(it))
    }

    /// Returns whether all that was found are calls of one tool that only looks, each for
    /// itself: other readings may cut its values better.
    fn is_loose(&self) -> bool {
        let is_apart = |it: &(String, DraftStep)| {
            let parameters = it.1.parameters.as_ref().and_then(Value::as_object);
            let texts = || parameters.into_iter().flatten().filter_map(|it| it.1.as_str());
            it.1.depends_on.is_none()
                && !texts().any(|it| it.contains("{{"))
                && (texts().any(|it| it.contains(char::is_alphabetic)) || self.query.contains('%'))
        };
        let only = self.tools.first();
        only.is_some_and(|it| self.profiles[*it].only_looks())
            && self.tools.iter().all(|it| Some(it) == only)
            && self.steps.iter().all(is_apart)
    }

    /// Returns whether other ways of reading the query are of no use.
    pub(crate) fn is_final(&self) -> bool {
        let changes =
            |it: &(String, DraftStep)| it.1.name.as_ref().is_some_and(|it| self.changes(it));
        self.problems.iter().any(|it| it.1.is_final()) || self.steps.iter().any(changes)
    }

    /// Returns whether a tool changes or ends what exists: nothing to do on a guess.
    fn changes(&self, name: &str) -> bool {
        let tool = self.profiles.iter().find(|it| it.name == name);
        tool.is_some_and(|it| {
            matches!(it.family, Some(Family::Update | Family::Delete)) && it.has_references()
        })
    }

    /// Returns why a plan that was made of what words may be worth is none to offer, if it is not.
    pub(crate) fn doubt(
        &self,
        broad: &Broad<'_>,
        parts: &[Part],
        strict: &Self,
    ) -> Option<&'static str> {
        let acts = parts.iter().any(|it| self.profiles[it.tool].acts());
        let is_told = self.steps.iter().all(|it| {
            it.1.parameters.as_ref().and_then(Value::as_object).is_some_and(|it| !it.is_empty())
        });
        let sure = if acts { CAREFUL } else { broad::CONFIDENCE };
        let needed = if is_told && !acts { EXPLAINED } else { WHOLLY };
        let calls: usize = parts.iter().map(|it| it.calls.len()).sum();
        if self.steps.is_empty() {
            return Some("no tool has words of the query");
        }
        if !self.problems.is_empty() {
            return Some("something is missing or left over");
        }
        let is_strange = strict.strange.iter().any(|it| acts || !broad.answers(parts, it));
        if is_strange && calls <= strict.steps.len() {
            return Some("an order is not understood");
        }
        if !parts.iter().all(|it| self.is_safe(broad, it, parts, strict)) {
            return Some("a tool that makes or changes things is not ordered by its own verb");
        }
        if self.confidence < sure {
            return Some("a parameter is not sure enough");
        }
        (broad.explained(parts) < needed).then_some("too little of the query is explained")
    }

    /// Returns whether a part may be carried out on evidence.
    ///
    /// What makes or changes things that refer to each other is done by grammar or not at all, and
    /// an order that is given twice is no order for one call.
    fn is_safe(&self, broad: &Broad<'_>, part: &Part, parts: &[Part], strict: &Self) -> bool {
        let profile = &self.profiles[part.tool];
        let asked = strict.verbs.iter().filter(|it| profile.verbs.first() == Some(it)).count();
        let calls = parts.iter().filter(|it| it.tool == part.tool).map(|it| it.calls.len());
        let makes = matches!(
            profile.family,
            Some(Family::Create | Family::Update | Family::Delete | Family::Send)
        );
        // A call that takes nothing needs a word that asks for it.
        let is_asked = |verb: &String| {
            profile.verbs.contains(verb)
                || profile.family.is_some_and(|it| words::families(verb).contains(&it))
        };
        let is_told = part.calls.iter().all(|it| !it.parameters.is_empty());
        (is_told || strict.verbs.iter().any(is_asked))
            && !(makes && profile.has_references())
            && (!profile.acts() || broad.is_ordered(part))
            && asked <= calls.sum::<usize>().max(1)
    }

    /// Returns whether what was said is no order for a tool that acts.
    pub(crate) fn is_refused(&self) -> bool {
        self.problems.iter().any(|it| matches!(it.1, Problem::NoOrder { .. }))
    }
}

/// Returns whether no text begins or ends with a word that belongs to the sentence around it.
fn is_clean(value: &Value) -> bool {
    match value {
        Value::String(text) if !text.starts_with("{{") => {
            let is_tie = |it: &str| {
                words::is_preposition(it)
                    || matches!(it, "and" | "or" | "which" | "," | "the" | "a")
            };
            let mut said = text.split_whitespace();
            let (first, last) = (said.next().unwrap_or_default(), said.next_back());
            (first == "about" || !is_tie(first)) && !last.is_some_and(is_tie)
        }
        Value::Array(items) => items.iter().all(is_clean),
        Value::Object(fields) => fields.values().all(is_clean),
        _ => true,
    }
}
