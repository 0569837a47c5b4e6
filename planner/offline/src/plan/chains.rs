//! Values that no word of the query gives, but that tools which read can produce from what it gives.
//!
//! A required value that is missing (`refund the payment of order A-1020`), and the answer to a query
//! whose words name only the value wanted and values known. [`planner::toolkit::chain`] finds the
//! calls between them. A list never gives a value, because nothing says which of its items is meant.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use planner::{
    catalog::Catalog,
    draft::DraftStep,
    toolkit::chain::{ChainGraph, Field, Fit, Given, Goal, Route, Shape, Source, value_of},
};
use serde_json::{Map, Value, json};

use super::Planning;
use crate::{
    clause::{Clause, Mood},
    fill::{Filling, Reading},
    lexicon::english,
    memory::PlannedStep,
    plan_name,
    token::{Kind, Token, number},
    tool::{has_form, read_examples},
};

/// Words before a value that can name it.
const WINDOW: usize = 8;

/// The tools of a catalog as a graph, which is built when a query first needs it.
pub(crate) struct Reach<'a> {
    catalog: &'a Catalog,
    graph: OnceCell<ChainGraph>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, graph: OnceCell::new() }
    }

    fn graph(&self) -> &ChainGraph {
        self.graph.get_or_init(|| {
            let tools = self.catalog.plannable();
            ChainGraph::new(tools.map(|tool| (plan_name(self.catalog, tool), tool.clone())))
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
    tokens: Vec<usize>,
}

/// How well a name is said: words in one piece, and the place.
type Naming = (usize, std::cmp::Reverse<usize>);

impl Planning<'_> {
    /// Finds calls that produce the missing values of a reading, and takes them off what is missing.
    pub(super) fn derivations(&self, clause: &Clause, reading: &mut Reading) -> Vec<Derivation> {
        let is_several = |token: &Token| self.lexicon.loops.has(&token.lower);
        let Some(reach) = self.reach.as_ref().filter(|_| !reading.missing.is_empty()) else {
            return Vec::new();
        };
        if clause.tokens.iter().any(is_several) || !clause.has_value() {
            return Vec::new();
        }
        let (graph, tool) = (reach.graph(), &self.tools[reading.tool]);
        let said = self.said_values(graph, &clause.tokens, |at| !reading.claimed[at]);
        let Some(own) = graph.find(&tool.name).filter(|_| !said.is_empty()) else {
            return Vec::new();
        };
        let given: Vec<Given> = said.iter().map(|said| said.given.clone()).collect();
        let avoided = BTreeSet::from([own]);
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

    /// Answers a query that names a wanted value and known ones, by a chain of calls between them.
    /// Returns whether there is one.
    pub(super) fn plan_answer(&mut self, clauses: &[Clause]) -> bool {
        let Some(reach) = &self.reach else { return false };
        if !self.planned.steps.is_empty() || clauses.iter().any(|clause| self.may_act(clause)) {
            return false;
        }
        let graph = reach.graph();
        let said: Vec<Said> = clauses
            .iter()
            .flat_map(|clause| self.said_values(graph, &clause.tokens, |_| true))
            .collect();
        let given: Vec<Given> = said.into_iter().map(|said| said.given).collect();
        let asks = |clause: &&Clause| {
            matches!(clause.mood, Mood::Order | Mood::Question | Mood::Fragment)
                && clause.condition.is_none()
                && clause.each.is_none()
        };
        let mut asking = clauses.iter().rev().filter(asks);
        let Some(wanted) = asking.find_map(|clause| wanted_outputs(graph, &clause.tokens)) else {
            return false;
        };
        let Some(route) = graph.find_route(Goal::Outputs(&wanted), &given, &BTreeSet::new()) else {
            return false;
        };
        if route.worst_fit() == Fit::Near {
            return false;
        }
        self.add_route(&route, &given);
        true
    }

    /// Returns whether a clause may order a call with an effect.
    fn may_act(&self, clause: &Clause) -> bool {
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
            let name =
                self.reach.as_ref().map(|reach| reach.graph().tools()[step.tool].name.clone());
            let name = name.unwrap_or_default();
            // Two derivations may need the same call.
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
        graph: &ChainGraph,
        tokens: &[Token],
        is_free: impl Fn(usize) -> bool,
    ) -> Vec<Said> {
        let mut said = Vec::new();
        for at in (0..tokens.len()).filter(|at| is_free(*at) && is_given(&tokens[*at])) {
            let ends = |place: &usize| {
                tokens[*place].is_value() || tokens[*place].is_any(&[".", "!", "?", ";"])
            };
            let first = at.saturating_sub(WINDOW);
            let start = (first..at).rev().find(ends).map_or(first, |place| place + 1);
            if let Some(found) = named_input(graph, tokens, start..at, &tokens[at]) {
                said.push(found);
            }
        }
        said
    }
}

/// Returns whether a token is a value that can identify something.
fn is_given(token: &Token) -> bool {
    let is_word = || !token.value.contains(char::is_whitespace);
    matches!(token.kind, Kind::Code | Kind::Id | Kind::Number | Kind::Email)
        || token.kind == Kind::Quoted && is_word()
}

/// Returns the value of a token for the parameter that the words before it name best. Several types
/// of parameters with equally good names tell nothing.
fn named_input(
    graph: &ChainGraph,
    tokens: &[Token],
    before: Range<usize>,
    token: &Token,
) -> Option<Said> {
    let mut best: BTreeMap<Naming, Vec<(&Field, Vec<usize>)>> = BTreeMap::new();
    let tools = graph.tools().iter().filter(|tool| tool.can_link);
    for field in tools.flat_map(|tool| &tool.inputs).filter(|field| field.is_required) {
        if value_for(token, field).is_none() {
            continue;
        }
        let namings = field.names.iter().filter_map(|name| {
            let name: Vec<&String> = name.iter().filter(|word| *word != "id").collect();
            let places = find_words(tokens, before.clone(), &name)?;
            let gap = before.end - places.last()?;
            Some(((name.len(), std::cmp::Reverse(gap)), places))
        });
        if let Some((naming, places)) = namings.max() {
            best.entry(naming).or_default().push((field, places));
        }
    }
    let (_, fields) = best.pop_last()?;
    let (field, places) = fields.first()?;
    if !fields.iter().all(|(other, _)| other.is_same_type(field)) {
        return None;
    }
    let given = Given::new(value_for(token, field)?, field);
    Some(Said { given, tokens: places.iter().copied().chain([before.end]).collect() })
}

/// Finds the words of a name among tokens, each behind the one before. Words without meaning may
/// stand between them.
fn find_words(tokens: &[Token], range: Range<usize>, name: &[&String]) -> Option<Vec<usize>> {
    let is_said =
        |at: &usize, word: &str| tokens[*at].kind == Kind::Word && tokens[*at].stem == word;
    let (last, others) = name.split_last()?;
    let end = range.clone().rev().find(|at| is_said(at, last))?;
    let mut places = vec![end];
    let mut next = end;
    for word in others.iter().rev() {
        let is_content = |at: &usize| !english().is_filler(&tokens[*at]);
        next = (range.start..next).rev().find(is_content).filter(|at| is_said(at, word))?;
        places.push(next);
    }
    places.reverse();
    Some(places)
}

/// Returns the value of a token in the type of a parameter, if it has the form of its examples.
fn value_for(token: &Token, field: &Field) -> Option<Value> {
    let figure = number(&token.value);
    let examples = read_examples(&field.description);
    let has_form =
        examples.is_empty() || examples.iter().any(|shown| has_form(&token.value, shown));
    match field.shape {
        Shape::Integer => figure.filter(|figure| figure.is_i64()).map(Value::Number),
        Shape::Number => figure.map(Value::Number),
        Shape::Text => has_form.then(|| json!(token.value.trim_start_matches('#'))),
    }
}

/// Returns the outputs that a clause names best, if they are of one type.
fn wanted_outputs(graph: &ChainGraph, tokens: &[Token]) -> Option<Vec<(usize, usize)>> {
    let mut best: BTreeMap<Naming, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, tool) in graph.tools().iter().enumerate().filter(|(_, tool)| tool.can_link) {
        for (place, field) in tool.outputs.iter().enumerate() {
            let namings = field.names.iter().filter_map(|name| {
                let name: Vec<&String> = name.iter().collect();
                let places = find_words(tokens, 0..tokens.len(), &name)?;
                Some((name.len(), std::cmp::Reverse(*places.first()?)))
            });
            if let Some(naming) = namings.max() {
                best.entry(naming).or_default().push((at, place));
            }
        }
    }
    let (_, fields) = best.pop_last()?;
    let field = |(tool, place): &(usize, usize)| &graph.tools()[*tool].outputs[*place];
    let first = field(fields.first()?);
    if !fields.iter().all(|other| field(other).is_same_type(first)) {
        return None;
    }
    // Other tools may call the same value by another name.
    let tools = graph.tools().iter().enumerate().filter(|(_, tool)| tool.can_link);
    let same = tools.flat_map(|(at, tool)| {
        let outputs = tool.outputs.iter().enumerate();
        outputs.filter(|(_, other)| other.is_same_type(first)).map(move |(place, _)| (at, place))
    });
    Some(same.collect())
}
