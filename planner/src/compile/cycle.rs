//! Reports cycles, one for each strongly connected component.

use std::collections::VecDeque;

use shared::{diagnostic::Diagnostic, id::StepNumber};

use super::{Step, names::Naming, references, report::Report};

/// Names that are written from each end of a long cycle.
const SHOWN_NAMES: usize = 25;

/// Reports a shortest cycle through the first step of each strongly connected component.
pub(super) fn find(
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    edges: &[Vec<StepNumber>],
    order: &[StepNumber],
    report: &mut Report,
) {
    let mut is_placed = vec![false; edges.len()];
    for step in order {
        is_placed[step.get()] = true;
    }
    let components = Components::new(edges, &is_placed);
    let mut search = Search::new(&components.of, edges);
    for first in components.firsts {
        report.error(first.get(), || {
            let cycle = search.shortest_cycle(first);
            let next = cycle.get(1).copied().unwrap_or(first);
            let (place, help) = references::explain_dependency(steps, naming, first, next);
            let names = format_cycle(&cycle, steps);
            let message = format!("Circular dependency detected between tools: {names}");
            Diagnostic::error("plan.cycle", place, message).with_help(help)
        });
    }
}

fn format_cycle(cycle: &[StepNumber], steps: &[Step<'_>]) -> String {
    let name = |number: &StepNumber| steps[number.get()].id.to_string();
    let left_out = cycle.len().saturating_sub(2 * SHOWN_NAMES);
    let mut names: Vec<String> = Vec::with_capacity(cycle.len().min(2 * SHOWN_NAMES) + 2);
    if left_out < 2 {
        names.extend(cycle.iter().map(name));
    } else {
        names.extend(cycle[..SHOWN_NAMES].iter().map(name));
        names.push(format!("… {left_out} more …"));
        names.extend(cycle[cycle.len() - SHOWN_NAMES..].iter().map(name));
    }
    names.extend(cycle.first().map(name));
    names.join(" -> ")
}

/// The component of steps without a cycle.
const NO_COMPONENT: u32 = u32::MAX;

/// The strongly connected components that have a cycle, by Tarjan's algorithm without recursion.
struct Components {
    of: Vec<u32>,
    /// The first step of each component, in draft order.
    firsts: Vec<StepNumber>,
}

impl Components {
    fn new(edges: &[Vec<StepNumber>], is_placed: &[bool]) -> Self {
        let mut tarjan = Tarjan::new(edges, is_placed);
        for at in 0..edges.len() {
            tarjan.visit_all(at);
        }
        let mut firsts: Vec<Option<StepNumber>> = vec![None; tarjan.count as usize];
        for (at, component) in tarjan.of.iter().enumerate() {
            if let Some(first) = firsts.get_mut(*component as usize) {
                first.get_or_insert(StepNumber::new(at));
            }
        }
        let mut firsts: Vec<StepNumber> = firsts.into_iter().flatten().collect();
        firsts.sort_unstable();
        Self { of: tarjan.of, firsts }
    }
}

struct Tarjan<'a> {
    edges: &'a [Vec<StepNumber>],
    is_placed: &'a [bool],
    /// The time at which each step was first visited, from one. Zero if unvisited.
    seen: Vec<u32>,
    /// The earliest step on the stack that each step reaches.
    low: Vec<u32>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    /// The current path: steps, each with its next dependency.
    way: Vec<(usize, usize)>,
    clock: u32,
    of: Vec<u32>,
    count: u32,
}

impl<'a> Tarjan<'a> {
    fn new(edges: &'a [Vec<StepNumber>], is_placed: &'a [bool]) -> Self {
        let n = edges.len();
        Self {
            edges,
            is_placed,
            seen: vec![0; n],
            low: vec![0; n],
            is_open: vec![false; n],
            open: Vec::new(),
            way: Vec::new(),
            clock: 0,
            of: vec![NO_COMPONENT; n],
            count: 0,
        }
    }

    fn visit_all(&mut self, root: usize) {
        self.enter_step(root);
        while let Some((step, next)) = self.way.last_mut() {
            let step = *step;
            if let Some(on) = self.edges[step].get(*next) {
                *next += 1;
                let on = on.get();
                if self.is_open[on] {
                    self.low[step] = self.low[step].min(self.seen[on]);
                } else {
                    self.enter_step(on);
                }
            } else {
                self.way.pop();
                self.leave_step(step);
            }
        }
    }

    fn enter_step(&mut self, step: usize) {
        if self.is_placed[step] || self.seen[step] != 0 {
            return;
        }
        self.clock += 1;
        self.seen[step] = self.clock;
        self.low[step] = self.clock;
        self.is_open[step] = true;
        self.open.push(step);
        self.way.push((step, 0));
    }

    fn leave_step(&mut self, step: usize) {
        if let Some((parent, _)) = self.way.last() {
            self.low[*parent] = self.low[*parent].min(self.low[step]);
        }
        if self.low[step] != self.seen[step] {
            return;
        }
        let has_cycle = self.open.last() != Some(&step)
            || self.edges[step].binary_search(&StepNumber::new(step)).is_ok();
        while let Some(member) = self.open.pop() {
            self.is_open[member] = false;
            if has_cycle {
                self.of[member] = self.count;
            }
            if member == step {
                break;
            }
        }
        self.count += u32::from(has_cycle);
    }
}

struct Search<'a> {
    of: &'a [u32],
    edges: &'a [Vec<StepNumber>],
    /// The predecessor of each step. Components share no step, so it is never cleared.
    from: Vec<Option<StepNumber>>,
}

impl<'a> Search<'a> {
    fn new(of: &'a [u32], edges: &'a [Vec<StepNumber>]) -> Self {
        Self { of, edges, from: vec![None; edges.len()] }
    }

    /// Returns a shortest path from `first` along its dependencies back to it.
    fn shortest_cycle(&mut self, first: StepNumber) -> Vec<StepNumber> {
        let mut queue = VecDeque::from([first]);
        while let Some(step) = queue.pop_front() {
            for on in &self.edges[step.get()] {
                if *on == first {
                    return self.way_to(first, step);
                }
                let is_inside = self.of[on.get()] == self.of[first.get()];
                if is_inside && self.from[on.get()].is_none() {
                    self.from[on.get()] = Some(step);
                    queue.push_back(*on);
                }
            }
        }
        vec![first]
    }

    fn way_to(&self, first: StepNumber, last: StepNumber) -> Vec<StepNumber> {
        let mut way = vec![last];
        let mut step = last;
        while step != first
            && let Some(from) = self.from[step.get()]
        {
            way.push(from);
            step = from;
        }
        way.reverse();
        way
    }
}
