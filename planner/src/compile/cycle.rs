use std::collections::VecDeque;

use shared::{diagnostic::Diagnostic, id::StepNumber};

use super::{Step, names::Naming, references, report::Report};

const MAX_NAMES_PER_END: usize = 25;

pub(super) fn report_cycles(
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
    let mut search = CycleSearch::new(&components.component_of, edges);
    for first in components.first_steps {
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
    let left_out = cycle.len().saturating_sub(2 * MAX_NAMES_PER_END);
    let mut names: Vec<String> = Vec::with_capacity(cycle.len().min(2 * MAX_NAMES_PER_END) + 2);
    if left_out < 2 {
        names.extend(cycle.iter().map(name));
    } else {
        names.extend(cycle[..MAX_NAMES_PER_END].iter().map(name));
        names.push(format!("… {left_out} more …"));
        names.extend(cycle[cycle.len() - MAX_NAMES_PER_END..].iter().map(name));
    }
    names.extend(cycle.first().map(name));
    names.join(" -> ")
}

const NO_COMPONENT: u32 = u32::MAX;

/// The strongly connected components that have a cycle, by Tarjan's algorithm without recursion.
struct Components {
    component_of: Vec<u32>,
    first_steps: Vec<StepNumber>,
}

impl Components {
    fn new(edges: &[Vec<StepNumber>], is_placed: &[bool]) -> Self {
        let mut tarjan = Tarjan::new(edges, is_placed);
        for index in 0..edges.len() {
            tarjan.visit_all(index);
        }
        let mut first_steps: Vec<Option<StepNumber>> = vec![None; tarjan.count as usize];
        for (index, component) in tarjan.component_of.iter().enumerate() {
            if let Some(first) = first_steps.get_mut(*component as usize) {
                first.get_or_insert(StepNumber::new(index));
            }
        }
        let mut first_steps: Vec<StepNumber> = first_steps.into_iter().flatten().collect();
        first_steps.sort_unstable();
        Self { component_of: tarjan.component_of, first_steps }
    }
}

struct Tarjan<'a> {
    edges: &'a [Vec<StepNumber>],
    is_placed: &'a [bool],
    visited_at: Vec<u32>,
    lowest_reached: Vec<u32>,
    is_on_stack: Vec<bool>,
    stack: Vec<usize>,
    path: Vec<(usize, usize)>,
    clock: u32,
    component_of: Vec<u32>,
    count: u32,
}

impl<'a> Tarjan<'a> {
    fn new(edges: &'a [Vec<StepNumber>], is_placed: &'a [bool]) -> Self {
        let n = edges.len();
        Self {
            edges,
            is_placed,
            visited_at: vec![0; n],
            lowest_reached: vec![0; n],
            is_on_stack: vec![false; n],
            stack: Vec::new(),
            path: Vec::new(),
            clock: 0,
            component_of: vec![NO_COMPONENT; n],
            count: 0,
        }
    }

    fn visit_all(&mut self, root: usize) {
        self.enter_step(root);
        while let Some((step, next)) = self.path.last_mut() {
            let step = *step;
            if let Some(on) = self.edges[step].get(*next) {
                *next += 1;
                let on = on.get();
                if self.is_on_stack[on] {
                    self.lowest_reached[step] = self.lowest_reached[step].min(self.visited_at[on]);
                } else {
                    self.enter_step(on);
                }
            } else {
                self.path.pop();
                self.leave_step(step);
            }
        }
    }

    fn enter_step(&mut self, step: usize) {
        if self.is_placed[step] || self.visited_at[step] != 0 {
            return;
        }
        self.clock += 1;
        self.visited_at[step] = self.clock;
        self.lowest_reached[step] = self.clock;
        self.is_on_stack[step] = true;
        self.stack.push(step);
        self.path.push((step, 0));
    }

    fn leave_step(&mut self, step: usize) {
        if let Some((parent, _)) = self.path.last() {
            self.lowest_reached[*parent] =
                self.lowest_reached[*parent].min(self.lowest_reached[step]);
        }
        if self.lowest_reached[step] != self.visited_at[step] {
            return;
        }
        let has_cycle = self.stack.last() != Some(&step)
            || self.edges[step].binary_search(&StepNumber::new(step)).is_ok();
        while let Some(member) = self.stack.pop() {
            self.is_on_stack[member] = false;
            if has_cycle {
                self.component_of[member] = self.count;
            }
            if member == step {
                break;
            }
        }
        self.count += u32::from(has_cycle);
    }
}

struct CycleSearch<'a> {
    component_of: &'a [u32],
    edges: &'a [Vec<StepNumber>],
    /// The predecessor of each step. Components share no step, so this list is never cleared.
    predecessors: Vec<Option<StepNumber>>,
}

impl<'a> CycleSearch<'a> {
    fn new(component_of: &'a [u32], edges: &'a [Vec<StepNumber>]) -> Self {
        Self { component_of, edges, predecessors: vec![None; edges.len()] }
    }

    fn shortest_cycle(&mut self, first: StepNumber) -> Vec<StepNumber> {
        let mut queue = VecDeque::from([first]);
        while let Some(step) = queue.pop_front() {
            for on in &self.edges[step.get()] {
                if *on == first {
                    return self.path_to(first, step);
                }
                let is_inside = self.component_of[on.get()] == self.component_of[first.get()];
                if is_inside && self.predecessors[on.get()].is_none() {
                    self.predecessors[on.get()] = Some(step);
                    queue.push_back(*on);
                }
            }
        }
        vec![first]
    }

    fn path_to(&self, first: StepNumber, last: StepNumber) -> Vec<StepNumber> {
        let mut path = vec![last];
        let mut step = last;
        while step != first
            && let Some(from) = self.predecessors[step.get()]
        {
            path.push(from);
            step = from;
        }
        path.reverse();
        path
    }
}
