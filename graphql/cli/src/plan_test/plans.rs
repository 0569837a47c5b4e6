//! What the tests need of the store and of the configured tools: the plan, the plans that it
//! executes, the definitions of its tools, and recorded executions.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
};

use client::{failure::Failure, plan_file::read_plan};
use engine::{Engine, agent};
use planner::{
    compile::parse_value,
    draft::{Draft, SubDraft},
    sub_plans::list_sub_plan_names,
    suggest::did_you_mean,
};
use serde_json::{Value, json};
use shared::{
    execution::{Execution, Step, StepState},
    id::{ExecutionId, Part, StepId, StepNumber, Task, ToolName, ToolSetName},
    plan::{Plan, StepKind},
    store::SavedPlan,
    tool::{Effect, ToolDefinition, set_prefix},
};
use toolbox::{ToolLookup, flow};

use super::file::{Outcome, PlanSource, TestFile};

/// The toolset of a mocked tool that no configured toolset has, if its name does not contain one.
const UNKNOWN_SET: &str = "mocked";

/// The plan under test with everything that its execution needs.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    /// The draft of a plan file. `None` if the plan is stored.
    pub(super) draft: Option<Draft>,
    /// The stored plan, which is the last, and all plans that the plan executes.
    pub(super) plans: Vec<Arc<Plan>>,
    pub(super) saved: Vec<SavedPlan>,
    /// The name under which the plan is saved, so that its input is checked.
    pub(super) saved_name: Option<String>,
    pub(super) definitions: Vec<Arc<ToolDefinition>>,
    pub(super) recordings: BTreeMap<ExecutionId, Arc<Recording>>,
}

/// A task in a tree of executions: the steps from the root to the task, each with its item.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskPath {
    pub(super) steps: Vec<(StepId, Option<u32>)>,
    pub(super) is_undo: bool,
}

/// What a recorded execution and its children did.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) input: Value,
    outcomes: BTreeMap<TaskPath, Outcome>,
    /// The tasks that a person approved.
    approved: BTreeSet<TaskPath>,
}

impl fmt::Display for TaskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (step, item)) in self.steps.iter().enumerate() {
            let separator = if n == 0 { "" } else { "/" };
            write!(f, "{separator}{step}")?;
            item.iter().try_for_each(|item| write!(f, "[{item}]"))?;
        }
        if self.is_undo { f.write_str("/undo") } else { Ok(()) }
    }
}

impl Recording {
    pub(super) fn find_outcome(&self, path: &TaskPath) -> Option<Outcome> {
        self.outcomes.get(path).cloned()
    }

    pub(super) fn find_payload(&self, path: &TaskPath) -> Option<Value> {
        match self.outcomes.get(path) {
            Some(Outcome::Output(payload)) => Some(payload.clone()),
            _ => None,
        }
    }

    pub(super) fn is_approved(&self, path: &TaskPath) -> bool {
        self.approved.contains(path)
    }

    async fn load(engine: &Engine, id: ExecutionId) -> Result<Self, Failure> {
        let reader = &engine.executions.reader;
        let missing = || Failure::not_found("execution", &id.to_string());
        let root = reader.load(id).await?.ok_or_else(missing)?;
        let mut recording = Self { input: (*root.options().input).clone(), ..Self::default() };
        let mut executions = vec![(TaskPath::default(), root)];
        while let Some((above, execution)) = executions.pop() {
            for (path, child) in recording.add_execution(&above, &execution) {
                // The child of a pruned execution has no recorded calls.
                if let Some(child) = reader.load(child).await? {
                    executions.push((path, child));
                }
            }
        }
        Ok(recording)
    }

    /// Adds the tasks of an execution. Returns its child executions.
    fn add_execution(
        &mut self,
        above: &TaskPath,
        execution: &Execution,
    ) -> Vec<(TaskPath, ExecutionId)> {
        let mut children = Vec::new();
        for number in (0..execution.steps().len()).map(StepNumber::new) {
            let step = execution.step(number);
            let items = step.items.as_deref().map_or(0, |items| items.as_slice().len());
            let items = (0..items).filter_map(|index| u32::try_from(index).ok());
            let items = items.map(|index| Task::from(number).for_item(index));
            for task in items.chain([Task::from(number)]) {
                let Some(state) = execution.task(task) else { continue };
                let mut path = above.clone();
                let Part { item, .. } = task.part;
                path.steps.push((execution.plan().step(number).id.clone(), item));
                children.extend(state.child.map(|child| (path.clone(), child)));
                if let Some(undo) = state.undo.as_deref() {
                    self.add_task(TaskPath { is_undo: true, ..path.clone() }, undo);
                }
                self.add_task(path, state);
            }
        }
        children
    }

    fn add_task(&mut self, path: TaskPath, state: &Step) {
        if state.is_approved {
            self.approved.insert(path.clone());
        }
        let outcome = match (&state.state, state.known_output()) {
            (_, Some(output)) => Outcome::Output((**output).clone()),
            (StepState::Failed(error), None) => Outcome::Error(error.clone()),
            _ => return,
        };
        self.outcomes.insert(path, outcome);
    }
}

impl Workload {
    /// Loads everything that the tests of a file need.
    pub(crate) async fn load(engine: &Engine, file: &TestFile) -> Result<Self, Failure> {
        let mut workload = Self::default();
        match &file.plan {
            PlanSource::File(path) => {
                let written = read_plan(path).await?;
                let invalid = |diagnostics: Vec<_>| Failure::invalid_plan(&diagnostics);
                if written.has_errors() {
                    return Err(invalid(written.notices));
                }
                let mut input = written.input;
                engine::to_file_form(&mut input);
                let draft = parse_value(input).map_err(invalid)?;
                workload.add_draft(engine, draft).await?;
            }
            PlanSource::Id(id) => {
                let plan = engine.plans.library.load(*id).await?;
                let plan = plan.ok_or_else(|| Failure::not_found("plan", &id.to_string()))?;
                workload.add_plan(engine, &plan).await?;
            }
            PlanSource::Saved(name) => {
                let saved = engine.plans.library.saved_plan(name).await?;
                let missing = || {
                    let reason =
                        format!("there is no plan file `{name}`, and no plan is saved as it");
                    Failure::new("NOT_FOUND", reason)
                };
                let saved = saved.ok_or_else(missing)?;
                let plan = engine.plans.library.load(saved.plan).await?;
                let plan =
                    plan.ok_or_else(|| Failure::not_found("plan", &saved.plan.to_string()))?;
                workload.add_plan(engine, &plan).await?;
                workload.saved_name = Some(name.clone());
                workload.saved.push(saved);
            }
        }
        workload.refuse_agents()?;
        for id in file.tests.iter().filter_map(|test| test.record) {
            if let Entry::Vacant(recording) = workload.recordings.entry(id) {
                recording.insert(Arc::new(Recording::load(engine, id).await?));
            }
        }
        Ok(workload)
    }

    /// Returns the qualified name of a tool that a test mocks. The error is for the author of the
    /// file.
    pub(super) fn find_tool(&self, written: &str) -> Result<String, String> {
        if set_prefix(written) == Some(flow::SET) {
            return Err(format!("`{written}` cannot be mocked: tools of `flow` run as they are"));
        }
        let names: Vec<String> =
            self.definitions.iter().map(|tool| tool.qualified_name().to_string()).collect();
        let is_meant = |name: &&String| {
            *name == written || name.split_once('.').is_some_and(|(_, short)| short == written)
        };
        let exact = names.iter().find(|name| *name == written);
        exact.or_else(|| names.iter().find(is_meant)).cloned().ok_or_else(|| {
            let help = did_you_mean(written, names.iter().map(String::as_str));
            let help = help.map(|help| format!(": {help}")).unwrap_or_default();
            format!("the plan has no tool `{written}`{help}")
        })
    }

    async fn add_plan(&mut self, engine: &Engine, plan: &Arc<Plan>) -> Result<(), Failure> {
        let mut left = vec![Arc::clone(plan)];
        let mut seen = BTreeSet::new();
        let mut plans = Vec::new();
        while let Some(next) = left.pop() {
            if !seen.insert(next.id()) {
                continue;
            }
            for id in next.sub_plans() {
                left.extend(engine.plans.library.load(id).await?);
            }
            plans.push(next);
        }
        // Puts the plan itself last, where the test finds it.
        plans.reverse();
        for plan in &plans {
            for step in plan.steps() {
                if !matches!(step.kind, StepKind::Plan(_)) {
                    self.add_definition(engine, &step.tool, Some(step.policy.effect));
                }
                if let Some(undo) = &step.compensate {
                    self.add_definition(engine, &undo.tool, Some(undo.policy.effect));
                }
            }
        }
        self.plans.append(&mut plans);
        Ok(())
    }

    async fn add_draft(&mut self, engine: &Engine, draft: Draft) -> Result<(), Failure> {
        // Starts the toolsets of the plan and waits for them. The engine of each test compiles the
        // draft again with the mocks, so the result does not matter here.
        let _ = engine.plans.validate(&draft).await;
        for name in list_sub_plan_names(&draft) {
            let id = match name.parse() {
                Ok(id) => id,
                Err(_) => match engine.plans.library.saved_plan(name).await? {
                    Some(saved) => {
                        let id = saved.plan;
                        self.saved.push(saved);
                        id
                    }
                    None => continue,
                },
            };
            if let Some(plan) = engine.plans.library.load(id).await? {
                self.add_plan(engine, &plan).await?;
            }
        }
        for name in list_tool_names(&draft) {
            self.add_definition(engine, &name, None);
        }
        self.draft = Some(draft);
        Ok(())
    }

    /// Adds the definition of a tool: the configured definition if there is one, otherwise one that
    /// accepts any parameters. `planned` is the effect in a stored plan.
    fn add_definition(&mut self, engine: &Engine, name: &ToolName, planned: Option<Effect>) {
        let found = match engine.tools.inventory.toolbox().find(name) {
            ToolLookup::Tool(tool) | ToolLookup::Inactive(tool) => {
                Some(Arc::clone(tool.definition()))
            }
            _ => None,
        };
        let is_flow = set_prefix(name.as_str()) == Some(flow::SET);
        if is_flow || found.as_ref().is_some_and(|found| found.set.as_str() == flow::SET) {
            return;
        }
        let mut definition = match found {
            Some(found) => (*found).clone(),
            None => match make_definition(name) {
                Some(made) => made,
                None => return,
            },
        };
        definition.effect = planned.unwrap_or(definition.effect);
        let qualified = definition.qualified_name();
        if !self.definitions.iter().any(|known| known.qualified_name() == qualified) {
            self.definitions.push(Arc::new(definition));
        }
    }

    fn refuse_agents(&self) -> Result<(), Failure> {
        let is_agent = |tool: &&Arc<ToolDefinition>| agent::is_agent_tool(&tool.qualified_name());
        match self.definitions.iter().find(is_agent) {
            Some(tool) => {
                let name = tool.qualified_name();
                Err(Failure::usage(format!("`{name}` asks a model: plans of agents have no tests")))
            }
            None => Ok(()),
        }
    }
}

fn list_tool_names(draft: &Draft) -> Vec<ToolName> {
    let mut names = Vec::new();
    for step in &draft.tools {
        let undo = step.compensate.as_ref();
        let undo = ["name", "toolName"].map(|key| undo.and_then(|undo| undo.get(key)?.as_str()));
        let written = [step.name.as_deref(), step.tool_name.as_deref()].into_iter().chain(undo);
        names.extend(written.flatten().filter_map(|name| name.parse::<ToolName>().ok()));
        if let Some(SubDraft::Inline(inner)) = &step.plan {
            names.extend(list_tool_names(inner));
        }
    }
    names
}

/// Makes the definition of a tool that no configured toolset has.
fn make_definition(name: &ToolName) -> Option<ToolDefinition> {
    let (set, own) = match set_prefix(name.as_str()) {
        Some(set) => (set, &name.as_str()[set.len() + 1..]),
        None => (UNKNOWN_SET, name.as_str()),
    };
    Some(ToolDefinition {
        name: own.parse().ok()?,
        set: set.parse::<ToolSetName>().ok()?,
        description: String::new(),
        input_schema: json!({}),
        output_schema: None,
        effect: Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    })
}
