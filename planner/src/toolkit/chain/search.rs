//! The cheapest route from given values to a wanted field: Knuth's generalisation of Dijkstra's
//! algorithm to calls with several parameters.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use serde_json::Value;

use super::{
    ChainGraph, Given,
    field::{Field, Fit, Key, ValueForm, fit_of},
};

const MAX_DEPTH: usize = 12;
const MAX_STEPS: usize = 16;
const MAX_SEARCHED: usize = 2_000;
const CALL_COST: u32 = 10;
/// Cost of a warning in a tool's description, higher than the cost of many calls of other tools.
const CAUTION_COST: u32 = 200;
const NEAR_FIT_COST: u32 = 5;
const DESCRIBED_FIT_COST: u32 = 1;

#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// Any of these outputs, each given by the index of its tool and its index in the tool.
    Outputs(&'a [(usize, usize)]),
    Like(&'a Field),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Given(usize),
    Output { step: usize, path: String },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub parameter: String,
    pub source: Source,
    pub fit: Fit,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouteStep {
    pub tool: usize,
    pub inputs: Vec<Input>,
}

/// Calls in the order in which they run. The last call returns the wanted value. Without calls, the
/// value is a given one.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub steps: Vec<RouteStep>,
    pub source: Source,
    pub fit: Fit,
    /// `true` if no other value that can be reached fits as well.
    pub is_only: bool,
    pub cost: u32,
}

impl Route {
    pub fn worst_fit(&self) -> Fit {
        let inputs = self.steps.iter().flat_map(|step| &step.inputs);
        inputs.map(|input| input.fit).fold(self.fit, Fit::max)
    }

    pub fn used(&self) -> BTreeSet<usize> {
        let inputs = self.steps.iter().flat_map(|step| &step.inputs);
        let sources = inputs.map(|input| &input.source).chain([&self.source]);
        sources
            .filter_map(|source| match source {
                Source::Given(index) => Some(*index),
                Source::Output { .. } => None,
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Given(usize),
    Output(usize, usize),
}

/// A fact that the search learns at a cost. If two facts have the same cost, their order in this
/// type decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Filled { tool: usize, input: usize, fit: Fit, from: Origin },
    Called { tool: usize },
}

#[derive(Clone, Copy, Debug)]
struct Filled {
    from: Origin,
    fit: Fit,
    cost: u32,
}

struct Search<'a> {
    graph: &'a ChainGraph,
    given: &'a [Given],
    tools: BTreeSet<usize>,
    events: BinaryHeap<Reverse<(u32, Event)>>,
    filled: BTreeMap<(usize, usize), Filled>,
    called: BTreeMap<usize, (u32, usize)>,
    opened: BTreeSet<(Key, ValueForm<'a>)>,
}

impl ChainGraph {
    /// Finds the cheapest route to a goal. For a field, only the routes with the best fit count.
    /// The route begins with given values and avoids the tools in `avoided`.
    pub fn find_route(
        &self,
        goal: Goal<'_>,
        given: &[Given],
        avoided: &BTreeSet<usize>,
    ) -> Option<Route> {
        let tools = self.tools_before(goal, avoided);
        let mut search = Search {
            graph: self,
            given,
            tools,
            events: BinaryHeap::new(),
            filled: BTreeMap::new(),
            called: BTreeMap::new(),
            opened: BTreeSet::new(),
        };
        search.run();
        match goal {
            Goal::Outputs(wanted) => search.route_to_output(wanted),
            Goal::Like(field) => search.route_to_field(field),
        }
    }

    fn tools_before(&self, goal: Goal<'_>, avoided: &BTreeSet<usize>) -> BTreeSet<usize> {
        let is_open = |tool: &usize| self.tools[*tool].can_link && !avoided.contains(tool);
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let mut keys: BTreeSet<&Key> = BTreeSet::new();
        let mut next: BTreeSet<usize> = match goal {
            Goal::Outputs(wanted) => wanted.iter().map(|(tool, _)| *tool).collect(),
            Goal::Like(field) => {
                let outputs = field.keys.iter().filter_map(|key| self.producers.get(key));
                outputs.flatten().map(|(tool, _)| *tool).collect()
            }
        };
        for _ in 0..MAX_DEPTH {
            let mut before = BTreeSet::new();
            for tool in next.into_iter().filter(is_open) {
                if found.len() >= MAX_SEARCHED || !found.insert(tool) {
                    continue;
                }
                let inputs = self.tools[tool].inputs.iter().filter(|input| input.is_required);
                for key in inputs.flat_map(|input| &input.keys).filter(|key| keys.insert(*key)) {
                    let outputs = self.producers.get(key).into_iter().flatten();
                    before.extend(outputs.map(|(tool, _)| *tool));
                }
            }
            next = before;
        }
        found
    }
}

impl<'a> Search<'a> {
    fn run(&mut self) {
        for (index, given) in self.given.iter().enumerate() {
            self.open(given.cost, Origin::Given(index));
        }
        while let Some(Reverse((cost, event))) = self.events.pop() {
            match event {
                Event::Filled { tool, input, fit, from } => {
                    let is_new = !self.filled.contains_key(&(tool, input));
                    if is_new {
                        self.filled.insert((tool, input), Filled { from, fit, cost });
                        self.call_if_ready(tool);
                    }
                }
                Event::Called { tool } => {
                    for output in 0..self.graph.tools[tool].outputs.len() {
                        self.open(cost, Origin::Output(tool, output));
                    }
                }
            }
        }
    }

    /// Offers a value to all parameters that it fits. Of several values of one type, only the first
    /// is used: given values come first, then outputs by their cost.
    fn open(&mut self, cost: u32, from: Origin) {
        let (keys, value) = self.value_type(from);
        for key in keys {
            if !self.opened.insert((key.clone(), value)) {
                continue;
            }
            for (tool, input) in self.graph.consumers.get(key).into_iter().flatten() {
                let field = &self.graph.tools[*tool].inputs[*input];
                let fit = fit_of(key, value, field).filter(|_| self.tools.contains(tool));
                if let Some(fit) = fit {
                    let event = Event::Filled { tool: *tool, input: *input, fit, from };
                    self.events.push(Reverse((cost + cost_of(fit), event)));
                }
            }
        }
    }

    fn value_type(&self, from: Origin) -> (&'a [Key], ValueForm<'a>) {
        match from {
            Origin::Given(index) => {
                let given = &self.given[index];
                (&given.keys, ValueForm { shape: given.shape, form: &given.form })
            }
            Origin::Output(tool, output) => {
                let field = &self.graph.tools[tool].outputs[output];
                (&field.keys, ValueForm { shape: field.shape, form: &field.form })
            }
        }
    }

    fn call_if_ready(&mut self, tool: usize) {
        let chain_tool = &self.graph.tools[tool];
        let mut cost = if chain_tool.has_caution { CALL_COST + CAUTION_COST } else { CALL_COST };
        let mut depth = 0;
        for index in
            (0..chain_tool.inputs.len()).filter(|index| chain_tool.inputs[*index].is_required)
        {
            let Some(filled) = self.filled.get(&(tool, index)) else { return };
            cost += filled.cost;
            depth = depth.max(self.depth_of(filled.from));
        }
        if depth < MAX_DEPTH && !self.called.contains_key(&tool) {
            self.called.insert(tool, (cost, depth + 1));
            self.events.push(Reverse((cost, Event::Called { tool })));
        }
    }

    fn depth_of(&self, from: Origin) -> usize {
        match from {
            Origin::Given(_) => 0,
            Origin::Output(tool, _) => {
                self.called.get(&tool).map_or(MAX_DEPTH, |(_, depth)| *depth)
            }
        }
    }

    fn route_to_output(&self, wanted: &[(usize, usize)]) -> Option<Route> {
        let reached = wanted.iter().filter_map(|(tool, output)| {
            let (cost, _) = self.called.get(tool)?;
            Some((*cost, Origin::Output(*tool, *output)))
        });
        let reached: BTreeSet<(u32, Origin)> = reached.collect();
        let (cost, origin) = reached.first()?;
        self.route(*cost, *origin, Fit::Exact, reached.len() == 1)
    }

    fn route_to_field(&self, field: &Field) -> Option<Route> {
        let mut reached: BTreeSet<(u32, Origin, Fit)> = BTreeSet::new();
        let given =
            (0..self.given.len()).map(|index| (self.given[index].cost, Origin::Given(index)));
        let outputs = self.called.iter().flat_map(|(tool, (cost, _))| {
            let chain_tool = &self.graph.tools[*tool];
            let outputs =
                (0..chain_tool.outputs.len()).filter(|output| !chain_tool.repeats_input(*output));
            outputs.map(|output| (*cost, Origin::Output(*tool, output)))
        });
        for (cost, origin) in given.chain(outputs) {
            let (keys, value) = self.value_type(origin);
            let shared = keys.iter().filter(|key| field.keys.contains(key));
            let fit = shared.filter_map(|key| fit_of(key, value, field)).min();
            reached.extend(fit.map(|fit| (cost + cost_of(fit), origin, fit)));
        }
        let best = reached.iter().map(|(_, _, fit)| *fit).min()?;
        let (cost, origin, fit) = reached.iter().find(|(_, _, fit)| *fit == best)?;
        let count = reached.iter().filter(|(_, _, fit)| *fit == best).count();
        self.route(*cost, *origin, *fit, count == 1)
    }

    fn route(&self, cost: u32, origin: Origin, fit: Fit, is_only: bool) -> Option<Route> {
        let mut steps: Vec<RouteStep> = Vec::new();
        let source = self.add_source(origin, &mut steps)?;
        Some(Route { steps, source, fit, is_only, cost })
    }

    fn add_source(&self, origin: Origin, steps: &mut Vec<RouteStep>) -> Option<Source> {
        let (tool, output) = match origin {
            Origin::Given(index) => return Some(Source::Given(index)),
            Origin::Output(tool, output) => (tool, output),
        };
        let chain_tool = &self.graph.tools[tool];
        let path = chain_tool.outputs[output].path.clone();
        if let Some(step) = steps.iter().position(|step| step.tool == tool) {
            return Some(Source::Output { step, path });
        }
        let mut inputs = Vec::new();
        for (index, input) in
            chain_tool.inputs.iter().enumerate().filter(|(_, input)| input.is_required)
        {
            let filled = self.filled.get(&(tool, index))?;
            let source = self.add_source(filled.from, steps)?;
            inputs.push(Input { parameter: input.path.clone(), source, fit: filled.fit });
        }
        steps.push(RouteStep { tool, inputs });
        let step = steps.len() - 1;
        (steps.len() <= MAX_STEPS).then_some(Source::Output { step, path })
    }
}

fn cost_of(fit: Fit) -> u32 {
    match fit {
        Fit::Exact => 0,
        Fit::Described => DESCRIBED_FIT_COST,
        Fit::Near => NEAR_FIT_COST,
    }
}

/// Returns the value of a parameter for a source: a given value, or a template.
pub fn value_of(source: &Source, given: &[Given], ids: &[String]) -> Option<Value> {
    match source {
        Source::Given(index) => given.get(*index).map(|given| given.value.clone()),
        Source::Output { step, path } => {
            ids.get(*step).map(|id| Value::String(format!("{{{{{id}.{path}}}}}")))
        }
    }
}
