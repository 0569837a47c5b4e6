//! Answers to queries whose words name only a wanted value and known values. A list never gives a
//! value, because the query does not say which of its items is meant.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use planner::{
    draft::DraftStep,
    toolkit::chain::{ChainGraph, Field, Fit, Given, Goal, Place, Shape, Vocabulary, value_of},
};
use serde_json::{Value, json};

use super::Planning;
use crate::{
    clause::{Clause, Mood},
    plan_name,
    token::{Token, TokenKind, number},
    tool::{Tool, has_form, read_options},
};

/// Maximum number of words that name a value, and of small words between these words and the value:
/// `the order is A-1`.
const MAX_NAME_WORDS: usize = 8;
const MAX_SMALL_WORDS: usize = 2;

struct LinkedTools {
    graph: ChainGraph,
    vocabulary: Vocabulary,
}

impl Planning<'_> {
    fn name_before(&self, tokens: &[Token], at: usize) -> Range<usize> {
        let is_small = |place: &usize| self.lexicon.is_filler(&tokens[*place]);
        let end = at - (0..at).rev().take(MAX_SMALL_WORDS).take_while(is_small).count();
        let is_content = |place: &usize| self.lexicon.is_content(&tokens[*place]);
        let start = end - (0..end).rev().take(MAX_NAME_WORDS).take_while(is_content).count();
        start..end
    }

    /// Answers a query that names a wanted value and known values, by a chain of calls between
    /// them. Returns whether there is such a chain.
    pub(super) fn plan_answer(&mut self, clauses: &[Clause]) -> bool {
        let Some(catalog) = self.chain_catalog else { return false };
        if !self.planned.steps.is_empty() || clauses.iter().any(|clause| self.may_act(clause)) {
            return false;
        }
        let tools = catalog.list_plannable();
        let graph = ChainGraph::new(tools.map(|tool| (plan_name(catalog, tool), Arc::clone(tool))));
        let vocabulary = graph.vocabulary();
        let linked = LinkedTools { graph, vocabulary };
        let values = |clause: &Clause| -> Vec<Given> {
            let places = 0..clause.tokens.len();
            places.filter_map(|at| self.named_value(&linked, &clause.tokens, at)).collect()
        };
        let given: Vec<Given> = clauses.iter().flat_map(values).collect();
        let asks = |clause: &&Clause| {
            matches!(clause.mood, Mood::Order | Mood::Question | Mood::Fragment)
                && clause.condition.is_none()
                && clause.each.is_none()
        };
        let mut asking = clauses.iter().rev().filter(asks);
        let Some(wanted) = asking.find_map(|clause| self.wanted_outputs(&linked, clause)) else {
            return false;
        };
        let Some(route) = linked.graph.find_route(Goal::Outputs(&wanted), &given, &BTreeSet::new())
        else {
            return false;
        };
        if route.worst_fit() == Fit::Near {
            return false;
        }
        let mut ids: Vec<String> = Vec::new();
        for step in &route.steps {
            let values = step.inputs.iter().filter_map(|input| {
                Some((input.parameter.clone(), value_of(&input.source, &given, &ids)?))
            });
            let parameters = Some(Value::Object(values.collect()));
            let name = linked.graph.tools()[step.tool].name.clone();
            let id = self.free_id(&name);
            ids.push(id.clone());
            self.planned.steps.push(DraftStep {
                id: Some(id),
                name: Some(name),
                parameters,
                ..DraftStep::default()
            });
        }
        true
    }

    fn may_act(&self, clause: &Clause) -> bool {
        let fits = |tool: &Tool| tool.has_effect && self.verb_fit(clause, tool).score > 0.0;
        clause.verb.is_some() && self.tools.iter().any(fits) || self.names_order(clause)
    }

    fn named_value(&self, linked: &LinkedTools, tokens: &[Token], at: usize) -> Option<Given> {
        let name = self.name_before(tokens, at);
        let words: Vec<&str> = tokens[name].iter().map(|token| token.stem.as_str()).collect();
        let graph = &linked.graph;
        let field = |place: &Place| graph.field(*place);
        let takes =
            |place: &&Place| place.is_input && value_for(&tokens[at], field(place)).is_some();
        let accepts = |places: &[Place]| places.iter().any(|place| takes(&place));
        let named = linked.vocabulary.find(&words, accepts).filter(|_| is_given(&tokens[at]));
        let named = named.filter(|named| named.is_whole || named.is_identified)?;
        // The parameter whose own name is in the query tells the type best.
        let count = |place: &&Place| {
            let said = |name: &Vec<String>| {
                name.iter().filter(|word| words.contains(&word.as_str())).count()
            };
            field(place).names.iter().map(said).max().unwrap_or_default()
        };
        let inputs = named.places.iter().filter(takes);
        let place = inputs.rev().max_by_key(count)?;
        Some(Given::new(value_for(&tokens[at], field(place))?, field(place)))
    }

    fn wanted_outputs(&self, linked: &LinkedTools, clause: &Clause) -> Option<Vec<(usize, usize)>> {
        let has_output = |places: &[Place]| places.iter().any(|place| !place.is_input);
        let pieces = clause.tokens.split(|token| !self.lexicon.is_content(token));
        let named = pieces.filter_map(|piece| {
            let words: Vec<&str> = piece.iter().map(|token| token.stem.as_str()).collect();
            linked.vocabulary.find(&words, has_output)
        });
        let best = named
            .filter(|named| named.is_whole)
            .reduce(|best, named| if named.points > best.points { named } else { best });
        let outputs = best?.places.iter().filter(|place| !place.is_input);
        Some(outputs.map(|place| (place.tool, place.at)).collect())
    }
}

fn is_given(token: &Token) -> bool {
    let is_word = || !token.value.contains(char::is_whitespace);
    matches!(token.kind, TokenKind::Code | TokenKind::Id | TokenKind::Number | TokenKind::Email)
        || token.kind == TokenKind::Quoted && is_word()
}

fn value_for(token: &Token, field: &Field) -> Option<Value> {
    let figure = number(&token.value);
    let examples = read_options(&field.description);
    let has_form =
        examples.is_empty() || examples.iter().any(|shown| has_form(&token.value, shown));
    match field.shape {
        Shape::Integer => figure.filter(serde_json::Number::is_i64).map(Value::Number),
        Shape::Number => figure.map(Value::Number),
        Shape::Text => has_form.then(|| json!(token.value.trim_start_matches('#'))),
    }
}
