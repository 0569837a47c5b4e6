use std::{cmp::Reverse, collections::BinaryHeap};

use shared::{diagnostic::Diagnostic, id::StepNumber};

use super::{
    Step,
    names::{Naming, shorten_name},
    report::{Report, WHOLE_DRAFT},
};

const MAX_DIFFERENCES: usize = 8;

/// Returns the execution order. Repeatedly takes the first step in draft order whose dependencies
/// are in the order. Leaves out steps on cycles and their dependents.
pub(super) fn order_steps(edges: &[Vec<StepNumber>]) -> Vec<StepNumber> {
    let dependents = Dependents::new(edges);
    let mut missing: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<StepNumber>> = (0..edges.len())
        .filter(|step| missing[*step] == 0)
        .map(|step| Reverse(StepNumber::new(step)))
        .collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for dependent in dependents.dependents_of(step) {
            missing[dependent.get()] -= 1;
            if missing[dependent.get()] == 0 {
                ready.push(Reverse(*dependent));
            }
        }
    }
    order
}

/// The dependents of all steps in one list, so that memory stays linear.
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
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut steps = vec![StepNumber::new(0); starts[edges.len()]];
        for (index, on) in edges.iter().enumerate() {
            for on in on {
                steps[next[on.get()]] = StepNumber::new(index);
                next[on.get()] += 1;
            }
        }
        Self { starts, steps }
    }

    fn dependents_of(&self, step: StepNumber) -> &[StepNumber] {
        &self.steps[self.starts[step.get()]..self.starts[step.get() + 1]]
    }
}

/// Warns if the author's order differs from the order that the compiler found. With a cycle there
/// is no order, so only the names are checked.
pub(super) fn check_order(
    given: &[String],
    order: &[StepNumber],
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    report: &mut Report,
) {
    let found: Vec<_> = given.iter().map(|name| naming.names.find(name)).collect();
    let mut complaints = Vec::new();
    for (name, _) in given.iter().zip(&found).filter(|(_, step)| step.is_none()) {
        let (reason, help) = naming.describe_unknown_name(name, name);
        complaints.push(format!("it names `{}`, but {reason} ({help})", shorten_name(name)));
        if complaints.len() > MAX_DIFFERENCES {
            break;
        }
    }
    let mut is_named = vec![false; steps.len()];
    for step in found.iter().flatten() {
        is_named[step.get()] = true;
    }
    let left_out = is_named.iter().zip(steps).filter(|(is_named, _)| !**is_named);
    let left_out = left_out.map(|(_, step)| format!("it leaves out `{}`", step.id));
    complaints.extend(left_out.take(MAX_DIFFERENCES + 1));
    let is_complete = order.len() == steps.len();
    if complaints.is_empty() && is_complete {
        complaints.extend(order_differences(&found, order, steps));
    }
    if !complaints.is_empty() {
        if complaints.len() > MAX_DIFFERENCES {
            complaints.truncate(MAX_DIFFERENCES);
            complaints.push("and more".to_owned());
        }
        report.warning(WHOLE_DRAFT, || {
            let message = format!("it differs from the computed order: {}", complaints.join("; "));
            Diagnostic::warning("plan.order_differs", "executionOrder", message)
                .with_help("remove `executionOrder`, because Faber always computes the order")
        });
    }
}

fn order_differences(
    found: &[Option<StepNumber>],
    order: &[StepNumber],
    steps: &[Step<'_>],
) -> Vec<String> {
    if found.len() > order.len() {
        return vec!["it names a step twice".to_owned()];
    }
    let places = found.iter().flatten().zip(order).enumerate();
    let differs = places.filter(|(_, (given, found))| given != found);
    let differences = differs.map(|(index, (given, found))| {
        let (given, found) = (&steps[given.get()].id, &steps[found.get()].id);
        format!("position {} has `{given}`, not `{found}`", index + 1)
    });
    differences.take(MAX_DIFFERENCES + 1).collect()
}
