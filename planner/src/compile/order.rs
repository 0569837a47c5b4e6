//! The order in which steps can run.

use std::{cmp::Reverse, collections::BinaryHeap};

use shared::{diagnostic::Diagnostic, id::StepNumber};

use super::{
    Step,
    names::{Naming, clip},
    report::{Report, WHOLE},
};

/// How many differences are told of one by one.
const TOLD: usize = 8;

/// Returns the order: repeatedly, of the steps whose dependencies are placed, the one written
/// first. Steps of cycles, and what depends on them, are left out.
pub(super) fn written_first(edges: &[Vec<StepNumber>]) -> Vec<StepNumber> {
    let dependents = Dependents::new(edges);
    let mut missing: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<StepNumber>> = (0..edges.len())
        .filter(|it| missing[*it] == 0)
        .map(|it| Reverse(StepNumber::new(it)))
        .collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for dependent in dependents.of(step) {
            missing[dependent.get()] -= 1;
            if missing[dependent.get()] == 0 {
                ready.push(Reverse(*dependent));
            }
        }
    }
    order
}

/// Who depends on each step: one list for all, so that memory stays linear.
struct Dependents {
    starts: Vec<usize>,
    steps: Vec<StepNumber>,
}

impl Dependents {
    fn new(edges: &[Vec<StepNumber>]) -> Self {
        let mut starts = vec![0; edges.len() + 1];
        for on in edges.iter().flatten() {
            starts[on.get() + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut steps = vec![StepNumber::new(0); starts[edges.len()]];
        for (at, on) in edges.iter().enumerate() {
            for on in on {
                steps[next[on.get()]] = StepNumber::new(at);
                next[on.get()] += 1;
            }
        }
        Self { starts, steps }
    }

    fn of(&self, step: StepNumber) -> &[StepNumber] {
        &self.steps[self.starts[step.get()]..self.starts[step.get() + 1]]
    }
}

/// Warns where the order that the author gave is not the one that was found.
///
/// Where there is a cycle only the names are checked: there is no order to compare with.
pub(super) fn check(
    given: &[String],
    order: &[StepNumber],
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    report: &mut Report,
) {
    let found: Vec<_> = given.iter().map(|it| naming.names.find(it)).collect();
    let mut complaints = Vec::new();
    for (name, _) in given.iter().zip(&found).filter(|(_, it)| it.is_none()) {
        let (why, help) = naming.why_not(name, name);
        complaints.push(format!("it names `{}`, but {why} ({help})", clip(name)));
        if complaints.len() > TOLD {
            break;
        }
    }
    let mut is_named = vec![false; steps.len()];
    for step in found.iter().flatten() {
        is_named[step.get()] = true;
    }
    let left_out = is_named.iter().zip(steps).filter(|(it, _)| !**it);
    let left_out = left_out.map(|(_, step)| format!("it leaves out `{}`", step.id));
    complaints.extend(left_out.take(TOLD + 1));
    let is_complete = order.len() == steps.len();
    if complaints.is_empty() && is_complete {
        complaints.extend(differences(&found, order, steps));
    }
    if !complaints.is_empty() {
        if complaints.len() > TOLD {
            complaints.truncate(TOLD);
            complaints.push("and more".to_owned());
        }
        report.warning(WHOLE, || {
            let message = format!("the order is not the one found: {}", complaints.join("; "));
            Diagnostic::warning("plan.order_differs", "executionOrder", message)
                .with_help("the order is always computed; leave `executionOrder` out")
        });
    }
}

/// Returns each place where something else belongs, and one more than are told of at most.
fn differences(
    found: &[Option<StepNumber>],
    order: &[StepNumber],
    steps: &[Step<'_>],
) -> Vec<String> {
    if found.len() > order.len() {
        return vec!["it names a step twice".to_owned()];
    }
    let places = found.iter().flatten().zip(order).enumerate();
    let differs = places.filter(|(_, (given, found))| given != found);
    let told = differs.map(|(at, (given, found))| {
        let (given, found) = (&steps[given.get()].id, &steps[found.get()].id);
        format!("at {} it has `{given}` where `{found}` belongs", at + 1)
    });
    told.take(TOLD + 1).collect()
}
