//! Values that templates can read: outputs, and values of a single task.

use serde_json::Value;

use super::{Execution, Step};
use crate::{
    id::{StepNumber, Task},
    template::{LookUpValues, Target},
};

/// The values that the templates of one task can read.
#[derive(Debug)]
pub struct TemplateScope<'a> {
    execution: &'a Execution,
    item: Option<&'a Value>,
    index: Option<Value>,
    /// The output of the task that this task undoes, with the number of its step.
    own_output: Option<(StepNumber, &'a Value)>,
}

impl Execution {
    /// Returns the values that the templates of a task can read.
    pub fn template_scope(&self, task: Task) -> TemplateScope<'_> {
        let list = task.part.item.and_then(|index| Some((index, self.list(task.step)?)));
        let done = Task { part: crate::id::Part { undo: false, ..task.part }, ..task };
        let done_output =
            task.part.undo.then(|| self.task(done).and_then(Step::known_output)).flatten();
        TemplateScope {
            execution: self,
            item: list.and_then(|(index, list)| list.get(index as usize)),
            index: task.part.item.map(Value::from),
            own_output: done_output.map(|output| (task.step, &**output)),
        }
    }

    /// Returns the list that a step repeats for. Returns `None` if the value is not known yet or is
    /// not a list.
    pub fn list(&self, step: StepNumber) -> Option<&Vec<Value>> {
        let list = &self.plan().step(step).for_each.as_ref()?.list;
        list.path.find(self.find_value(&list.target)?)?.as_array()
    }
}

impl LookUpValues for TemplateScope<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match (target, self.own_output) {
            (Target::Step(step), Some((done_step, output))) if *step == done_step => Some(output),
            (Target::Item, _) => self.item,
            (Target::Index, _) => self.index.as_ref(),
            _ => self.execution.find_value(target),
        }
    }
}

impl LookUpValues for Execution {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(number) => self.output(*number),
            Target::Variable(name) => self.variable(name),
            Target::Input => Some(&self.options().input),
            Target::Item | Target::Index => None,
        }
    }
}
