//! Values that no word of the query gives, but that tools which only read can produce from values
//! that the query gives.
//!
//! Such a value is a required value that is missing (`refund the payment of order A-1020`), or the
//! answer to a query whose words name only the wanted value and known values.
//! [`planner::toolkit::chain`] finds the calls from the known values to the wanted value. A list
//! never gives a value, because the query does not say which of its items is meant.

use std::{cell::OnceCell, collections::BTreeSet, ops::Range, sync::Arc};

use planner::{
    catalog::Catalog,
    draft::DraftStep,
    toolkit::chain::{
        ChainGraph, Field, Fit, Given, Goal, Place, Route, Shape, Vocabulary, value_of,
    },
};
use serde_json::{Map, Value, json};

use super::Planning;
use crate::{
    clause::{Clause, Mood},
    fill::{Filling, Reading},
    memory::PlannedStep,
    plan_name,
    token::{Kind, Token, number},
    tool::{SlotKind, has_form, read_examples},
};

/// Maximum number of words that name a value, and of small words between these words and the value:
/// `the order is A-1`.
const MAX_NAME: usize = 8;
const MAX_SMALL: usize = 2;

/// The tools of a catalog as a graph, which is built when a query first needs it.
pub(crate) struct Reach<'a> {
    catalog: &'a Catalog,
    linked: OnceCell<Linked>,
}

struct Linked {
    graph: ChainGraph,
    vocabulary: Vocabulary,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, linked: OnceCell::new() }
    }

    fn linked(&self) -> &Linked {
        self.linked.get_or_init(|| {
            let tools = self.catalog.list_plannable();
            let named = tools.map(|tool| (plan_name(self.catalog, tool), Arc::clone(tool)));
            let graph = ChainGraph::new(named);
            let vocabulary = graph.vocabulary();
            Linked { graph, vocabulary }
        })
    }
}

/// The calls that produce the value of a slot.
pub(super) struct Derivation {
    slot: usize,
    route: Route,
    given: Vec<Given>,
}

/// A value of the query, with the tokens that say it.
struct Said {
    given: Given,
    is_id: bool,
    tokens: Vec<usize>,
}

impl Planning<'_> {
    /// Finds calls that produce the missing values of a reading, and removes these values from the
    /// missing values of the reading.
    pub(super) fn derivations(&self, clause: &Clause, reading: &mut Reading) -> Vec<Derivation> {
        let is_several = |token: &Token| self.lexicon.loops.has(&token.lower);
        let foreign = self.foreign_ids(clause, reading);
        let is_open = !foreign.is_empty() || !reading.missing.is_empty() && clause.has_value();
        let Some(reach) = self.reach.as_ref().filter(|_| is_open) else { return Vec::new() };
        if clause.tokens.iter().any(is_several) {
            return Vec::new();
        }
        let (linked, tool) = (reach.linked(), &self.tools[reading.tool]);
        let graph = &linked.graph;
        let is_foreign = |at: usize| foreign.iter().any(|(_, token)| *token == at);
        let is_free = |at: usize| !reading.claimed[at] || is_foreign(at);
        let said = self.said_values(linked, &clause.tokens, is_free);
        let Some(own) = graph.find(&tool.name).filter(|_| !said.is_empty()) else {
            return Vec::new();
        };
        let given: Vec<Given> = said.iter().map(|said| said.given.clone()).collect();
        let avoided = BTreeSet::from([own]);
        for (slot, at) in &foreign {
            let Some(field) = graph.tools()[own].input(&tool.slots[*slot].parameter) else {
                continue;
            };
            let of_other = |said: &Said| {
                said.is_id && said.tokens.contains(at) && !said.given.has_type_of(field)
            };
            let is_reached = || graph.find_route(Goal::Like(field), &given, &avoided).is_some();
            if said.iter().any(of_other) && (tool.has_effect || is_reached()) {
                reading.fillings.remove(slot);
                reading.guessed.retain(|guessed| guessed != slot);
                reading.missing.push(*slot);
            }
        }
        let mut derivations = Vec::new();
        for slot in std::mem::take(&mut reading.missing) {
            let wanted = &tool.slots[slot];
            let field = graph.tools()[own].input(&wanted.parameter);
            let field = field.filter(|_| wanted.field.is_none() && !wanted.is_list);
            let route =
                field.and_then(|field| graph.find_route(Goal::Like(field), &given, &avoided));
            let most = if tool.has_effect { Fit::Described } else { Fit::Near };
            let fits = |route: &Route| !route.steps.is_empty() && route.worst_fit() <= most;
            let Some(route) = route.filter(fits) else {
                reading.missing.push(slot);
                continue;
            };
            for at in route.used().into_iter().flat_map(|at| &said[at].tokens) {
                reading.claimed[*at] = true;
                reading.unplaced.retain(|other| other != at);
            }
            derivations.push(Derivation { slot, route, given: given.clone() });
        }
        derivations
    }

    /// Returns the slots of ids with the tokens that fill them, where the words before the token do
    /// not name the thing that the id identifies: `payment_id` in `refund the payment of order
    /// A-1020`.
    fn foreign_ids(&self, clause: &Clause, reading: &Reading) -> Vec<(usize, usize)> {
        let tool = &self.tools[reading.tool];
        let tokens = &clause.tokens;
        let mut foreign = Vec::new();
        for (at, filling) in &reading.fillings {
            let slot = &tool.slots[*at];
            let Filling::One(value) = filling else { continue };
            let is_it = |token: &Token| {
                let figure = || number(&token.value).map(Value::Number);
                is_given(token)
                    && (value.as_str() == Some(&token.value) || figure().as_ref() == Some(value))
            };
            let said = tokens.iter().position(is_it);
            let is_code = |said: &usize| matches!(tokens[*said].kind, Kind::Code | Kind::Id);
            let said = said.filter(|said| {
                slot.kind == SlotKind::Id || slot.kind == SlotKind::Word && is_code(said)
            });
            let is_plain = slot.field.is_none() && !slot.is_list;
            let Some(said) = said.filter(|_| is_plain) else { continue };
            let nouns = slot.nouns(tool, self.lexicon);
            let is_own = |token: &Token| {
                slot.words.contains(&token.stem)
                    || nouns.iter().any(|noun| self.lexicon.is_same_noun(noun, &token.stem))
            };
            let name = &tokens[self.name_before(tokens, said)];
            if !name.is_empty() && !name.iter().any(is_own) {
                foreign.push((*at, said));
            }
        }
        foreign
    }

    /// Returns the place of the words that may name a value: `the order is A-1020`.
    fn name_before(&self, tokens: &[Token], at: usize) -> Range<usize> {
        let is_small = |place: &usize| self.lexicon.is_filler(&tokens[*place]);
        let end = at - (0..at).rev().take(MAX_SMALL).take_while(is_small).count();
        let is_content = |place: &usize| self.is_content(&tokens[*place]);
        let start = end - (0..end).rev().take(MAX_NAME).take_while(is_content).count();
        start..end
    }

    /// Adds the calls that produce missing values, and fills the slots with their outputs. A value
    /// for an acting call is a guess unless all names fit exactly and nothing else fits.
    pub(super) fn add_derivations(&mut self, reading: &mut Reading, derivations: Vec<Derivation>) {
        let acts = self.tools[reading.tool].has_effect;
        for Derivation { slot, route, given } in derivations {
            let value = self.add_route(&route, &given);
            reading.fillings.insert(slot, Filling::One(value));
            let is_sure = if acts {
                route.worst_fit() == Fit::Exact && route.is_only
            } else {
                route.worst_fit() < Fit::Near
            };
            reading.guessed.extend((!is_sure).then_some(slot));
        }
    }

    /// Answers a query that names a wanted value and known values, by a chain of calls between
    /// them. Returns whether there is such a chain.
    pub(super) fn plan_answer(&mut self, clauses: &[Clause]) -> bool {
        let Some(reach) = &self.reach else { return false };
        if !self.planned.steps.is_empty() || clauses.iter().any(|clause| self.may_act(clause)) {
            return false;
        }
        let linked = reach.linked();
        let said: Vec<Said> = clauses
            .iter()
            .flat_map(|clause| self.said_values(linked, &clause.tokens, |_| true))
            .collect();
        let given: Vec<Given> = said.into_iter().map(|said| said.given).collect();
        let asks = |clause: &&Clause| {
            matches!(clause.mood, Mood::Order | Mood::Question | Mood::Fragment)
                && clause.condition.is_none()
                && clause.each.is_none()
        };
        let mut asking = clauses.iter().rev().filter(asks);
        let Some(wanted) = asking.find_map(|clause| self.wanted_outputs(linked, clause)) else {
            return false;
        };
        let Some(route) = linked.graph.find_route(Goal::Outputs(&wanted), &given, &BTreeSet::new())
        else {
            return false;
        };
        if route.worst_fit() == Fit::Near {
            return false;
        }
        self.add_route(&route, &given);
        true
    }

    /// Returns whether a clause may order a call with an effect.
    pub(super) fn may_act(&self, clause: &Clause) -> bool {
        let acts = |clause: &Clause| {
            self.tools.iter().any(|tool| tool.has_effect && self.verb_fit(clause, tool).score > 0.0)
        };
        clause.verb.is_some() && acts(clause) || self.names_order(clause)
    }

    /// Adds the calls of a route. Returns the value at its end, as a template.
    fn add_route(&mut self, route: &Route, given: &[Given]) -> Value {
        let mut ids: Vec<String> = Vec::new();
        for step in &route.steps {
            let values = step.inputs.iter().filter_map(|input| {
                Some((input.parameter.clone(), value_of(&input.source, given, &ids)?))
            });
            let parameters: Map<String, Value> = values.collect();
            let name = self
                .reach
                .as_ref()
                .map(|reach| reach.linked().graph.tools()[step.tool].name.clone());
            let name = name.unwrap_or_default();
            // Reuses a call that another derivation has added already.
            let same =
                self.planned.steps.iter().zip(&self.memory.steps).find(|(planned, known)| {
                    planned.name.as_ref() == Some(&name)
                        && known.is_derived
                        && known.parameters == parameters
                });
            let same = same.map(|(_, known)| known.id.clone());
            ids.push(same.unwrap_or_else(|| self.add_derived_step(name, parameters)));
        }
        value_of(&route.source, given, &ids).unwrap_or_default()
    }

    fn add_derived_step(&mut self, name: String, parameters: Map<String, Value>) -> String {
        let id = self.free_id(&name);
        self.memory.steps.push(PlannedStep {
            id: id.clone(),
            tool: 0,
            parameters: parameters.clone(),
            is_loop: false,
            is_derived: true,
        });
        self.planned.steps.push(DraftStep {
            id: Some(id.clone()),
            name: Some(name),
            parameters: Some(Value::Object(parameters)),
            ..DraftStep::default()
        });
        id
    }

    /// Returns the values of tokens whose words before them name one type of parameter.
    fn said_values(
        &self,
        linked: &Linked,
        tokens: &[Token],
        is_free: impl Fn(usize) -> bool,
    ) -> Vec<Said> {
        let values = (0..tokens.len()).filter(|at| is_free(*at) && is_given(&tokens[*at]));
        values.filter_map(|at| self.named_value(linked, tokens, at)).collect()
    }

    /// Returns the value of a token for the parameters that the words before it name.
    fn named_value(&self, linked: &Linked, tokens: &[Token], at: usize) -> Option<Said> {
        let name = self.name_before(tokens, at);
        let start = name.start;
        let words: Vec<&str> = tokens[name].iter().map(|token| token.stem.as_str()).collect();
        let graph = &linked.graph;
        let field = |place: &Place| graph.field(*place);
        let takes =
            |place: &&Place| place.is_input && value_for(&tokens[at], field(place)).is_some();
        let accepts = |places: &[Place]| places.iter().any(|place| takes(&place));
        let named = linked.vocabulary.find(&words, accepts);
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
        let given = Given::new(value_for(&tokens[at], field(place))?, field(place));
        let is_id = field(place).is_id();
        let tokens = named.words.iter().map(|word| start + word).chain([at]).collect();
        Some(Said { given, is_id, tokens })
    }

    /// Returns the outputs that a clause names best, if they are of one type.
    fn wanted_outputs(&self, linked: &Linked, clause: &Clause) -> Option<Vec<(usize, usize)>> {
        let has_output = |places: &[Place]| places.iter().any(|place| !place.is_input);
        let pieces = clause.tokens.split(|token| !self.is_content(token));
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

    pub(super) fn is_content(&self, token: &Token) -> bool {
        token.kind == Kind::Word && !self.lexicon.is_filler(token)
    }
}

/// Returns whether a token is a value that can identify something.
fn is_given(token: &Token) -> bool {
    let is_word = || !token.value.contains(char::is_whitespace);
    matches!(token.kind, Kind::Code | Kind::Id | Kind::Number | Kind::Email)
        || token.kind == Kind::Quoted && is_word()
}

/// Returns the value of a token in the type of a parameter, if it has the form of its examples.
fn value_for(token: &Token, field: &Field) -> Option<Value> {
    let figure = number(&token.value);
    let examples = read_examples(&field.description);
    let has_form =
        examples.is_empty() || examples.iter().any(|shown| has_form(&token.value, shown));
    match field.shape {
        Shape::Integer => figure.filter(serde_json::Number::is_i64).map(Value::Number),
        Shape::Number => figure.map(Value::Number),
        Shape::Text => has_form.then(|| json!(token.value.trim_start_matches('#'))),
    }
}
