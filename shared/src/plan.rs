//! Plans: tool executions in an order that provably can run.
//!
//! A [`Plan`] cannot be invalid. The compiler *finds* the order; [`Plan::try_from`] *checks* it,
//! in one pass, for the compiler and for every load from a store: each step depends only on
//! earlier ones, and every template looks only at what its step depends on.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    clock::Timestamp,
    condition::{Condition, ConditionError},
    diagnostic::Diagnostic,
    id::{Part, PlanId, RequestId, StepId, StepIx, ToolName},
    limits,
    template::{Names, Path, Reference, Target, Template, TemplateError},
    tool::Effect,
};

/// A compiled plan.
#[derive(Clone, Debug)]
pub struct Plan {
    about: About,
    steps: Vec<ToolExecution>,
    numbers: BTreeMap<StepId, StepIx>,
    dependents: Vec<Vec<StepIx>>,
    /// Who fills a variable, in plan order: the last that did wins.
    variables: BTreeMap<Arc<str>, Vec<StepIx>>,
    diagnostics: Vec<Diagnostic>,
}

/// What a plan is for and where it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The plan's identifier.
    pub id: PlanId,
    /// The request that it belongs to.
    pub request: RequestId,
    /// Counts the plans of the request, from one.
    pub version: u32,
    /// What was asked for, in words.
    pub query: String,
    /// Who wrote the draft: `offline`, `explicit`, a model's name.
    pub planner: String,
    /// When it was compiled.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub created_at: Timestamp,
}

/// One tool call of a plan. In short, a step.
#[derive(Clone, Debug)]
pub struct ToolExecution {
    /// Its name within the plan.
    pub id: StepId,
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// Who carries it out.
    pub kind: StepKind,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// The parameters with their holes known.
    pub template: Template,
    /// What must be over before it starts, in plan order.
    pub depends_on: Vec<StepIx>,
    /// Which part of its output fills which variable.
    pub output_mapping: Vec<Mapping>,
    /// How it is carried out.
    pub policy: StepPolicy,
    /// Whether it is done at all. One that has a condition does not care how others ended.
    pub when: Option<Condition>,
    /// The list for each item of which it is done.
    pub for_each: Option<ForEach>,
    /// What undoes it.
    pub compensate: Option<Box<Compensation>>,
}

/// A list for each item of which a step is done.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEach {
    /// The template as it was written.
    pub written: String,
    /// Where the list is.
    pub list: Reference,
}

/// The call that undoes a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Compensation {
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// The parameters with their holes known.
    pub template: Template,
    /// How it is carried out.
    pub policy: StepPolicy,
}

/// What is called for a step, or for a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    /// The tool, as `set.name`.
    pub tool: &'a ToolName,
    /// Who carries it out.
    pub kind: StepKind,
    /// The parameters with their holes known.
    pub template: &'a Template,
    /// How it is carried out.
    pub policy: &'a StepPolicy,
}

/// A part of an output, and the variable that it fills.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The path as it was written.
    pub written: String,
    /// Where in the output.
    pub path: Path,
    /// The variable.
    pub variable: Arc<str>,
}

/// Who carries a step out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A tool is called.
    Call,
    /// `flow.sleep`: the machine itself waits for a time.
    Sleep,
    /// `flow.wait`: the machine itself waits for a signal.
    Wait,
    /// Another plan is executed.
    Plan(PlanId),
}

/// How a step is carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepPolicy {
    /// What a second call does.
    pub effect: Effect,
    /// How long an attempt may take, in milliseconds.
    pub timeout_ms: u64,
    /// How often and when it is tried again.
    pub retry: RetryPolicy,
    /// What a failure means for the others.
    pub on_error: OnError,
    /// Whether a person must agree before it starts.
    pub requires_approval: bool,
    /// How long an attempt may take without saying anything, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// How long what it returns may be taken for what it would return, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<u64>,
    /// How many items of its list are done at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self {
            effect: Effect::default(),
            timeout_ms: u64::try_from(limits::STEP_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            retry: RetryPolicy::default(),
            on_error: OnError::default(),
            requires_approval: false,
            idle_timeout_ms: None,
            cache_ttl_ms: None,
            max_parallel: None,
        }
    }
}

impl StepPolicy {
    /// Returns how long an attempt may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Returns how long an attempt may take, where the plan says so. The usual timeout is for
    /// calls: a sleep says itself how long it takes, and a plan is as long as it is.
    pub fn own_timeout_ms(&self) -> Option<u64> {
        (self.timeout() != limits::STEP_TIMEOUT).then_some(self.timeout_ms)
    }

    /// Returns how many items of its list are done at once.
    pub fn width(&self) -> u32 {
        self.max_parallel.unwrap_or(limits::MAX_PARALLEL).max(1)
    }
}

/// What the failure of a step means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The execution fails.
    #[default]
    Fail,
    /// The step's dependents are skipped, the rest goes on.
    Continue,
    /// The step's output is null, and everything goes on.
    Ignore,
    /// A person decides.
    Wait,
}

impl OnError {
    /// Returns the word that plans use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Continue => "continue",
            Self::Ignore => "ignore",
            Self::Wait => "wait",
        }
    }
}

/// How often a step is tried, and how long apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Tries in all. Interruptions by crashes do not count.
    pub max_attempts: u32,
    /// The wait before the second try, in milliseconds.
    pub backoff_ms: u64,
    /// What the wait is multiplied by each time.
    pub multiplier: f64,
    /// The longest wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// Whether each wait is drawn between half of it and all of it.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 1,
            backoff_ms: 100,
            multiplier: 2.0,
            max_backoff_ms: 30_000,
            jitter: true,
        }
    }
}

impl RetryPolicy {
    /// Returns how long to wait after `failures` failed tries, or nothing if that was the last.
    ///
    /// `dice` is any number; the same number gives the same wait.
    pub fn delay(&self, failures: u32, dice: u64) -> Option<TimeDelta> {
        if failures >= self.max_attempts.min(limits::ATTEMPTS) {
            return None;
        }
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of hours, not of ages")]
        let (base, most) = (self.backoff_ms as f64, self.max_backoff_ms as f64);
        let wait = (base * self.multiplier.max(0.0).powi(exponent)).min(most);
        #[expect(clippy::cast_precision_loss, reason = "a fraction needs few bits")]
        let share = if self.jitter { 0.5 + (dice % 1_024) as f64 / 2_048.0 } else { 1.0 };
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        Some(TimeDelta::microseconds((wait * share * 1_000.0) as i64))
    }
}

/// A plan as a store keeps it and as the compiler proposes it: perhaps one that cannot run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedPlan {
    /// What it is for and where it came from.
    pub about: About,
    /// The steps, in topological order.
    pub steps: Vec<UncheckedStep>,
    /// What its author should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// A step as a store keeps it and as the compiler proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedStep {
    /// Its name within the plan.
    pub id: StepId,
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// What must be over before it starts, templates' steps included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// Which path of its output fills which variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_mapping: Vec<(String, String)>,
    /// How it is carried out.
    pub policy: StepPolicy,
    /// The plan that it executes; the tool's name is then what the author called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// Its condition, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The template of the list for each item of which it is done, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// What undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Box<UncheckedCompensation>>,
}

/// The call that undoes a step, as a store keeps it and as the compiler proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedCompensation {
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// How it is carried out.
    pub policy: StepPolicy,
}

/// Why a plan cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is nothing to do.
    #[error("the plan has no steps")]
    Empty,
    /// There is too much to do.
    #[error("the plan has {0} steps; the most is {max}", max = limits::PLAN_STEPS)]
    TooLarge(usize),
    /// Two steps have one name.
    #[error("two steps are called `{0}`")]
    Duplicate(StepId),
    /// A step depends on itself, on a later one, or on none of the plan's.
    #[error("step `{step}` depends on `{on}`, which does not come before it")]
    Order {
        /// The step.
        step: StepId,
        /// What it depends on.
        on: String,
    },
    /// A template is wrong.
    #[error("step `{step}`, at `{}`: {error}", error.at)]
    Template {
        /// The step.
        step: StepId,
        /// What is wrong.
        error: TemplateError,
    },
    /// A condition is wrong.
    #[error("the condition of step `{step}` is wrong: {error}")]
    Condition {
        /// The step.
        step: StepId,
        /// What is wrong.
        error: ConditionError,
    },
    /// What a step is to be done for each item of is not one template.
    #[error("`forEach` of step `{0}` must be one whole template, such as `{{{{list}}}}`")]
    ForEach(StepId),
    /// An output mapping is wrong.
    #[error("step `{step}` maps `{path}`, which is not a path")]
    Mapping {
        /// The step.
        step: StepId,
        /// The path.
        path: String,
    },
}

impl TryFrom<UncheckedPlan> for Plan {
    type Error = PlanError;

    fn try_from(unchecked: UncheckedPlan) -> Result<Self, PlanError> {
        let UncheckedPlan { about, steps, diagnostics } = unchecked;
        match steps.len() {
            0 => return Err(PlanError::Empty),
            n if n > limits::PLAN_STEPS => return Err(PlanError::TooLarge(n)),
            _ => (),
        }
        let names = StepNames::new(steps.iter().map(|it| (&it.id, &it.tool)))?;
        let variables = variables(&steps);
        let mut dependents = vec![Vec::new(); steps.len()];
        let mut checked = Vec::with_capacity(steps.len());
        for (at, step) in steps.into_iter().enumerate() {
            let number = StepIx::new(at);
            let step = check_step(number, step, &names, &variables)?;
            for on in &step.depends_on {
                dependents[on.get()].push(number);
            }
            checked.push(step);
        }
        let numbers = names.steps;
        Ok(Self { about, steps: checked, numbers, dependents, variables, diagnostics })
    }
}

fn variables(steps: &[UncheckedStep]) -> BTreeMap<Arc<str>, Vec<StepIx>> {
    let mut variables: BTreeMap<Arc<str>, Vec<StepIx>> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        for (_, variable) in &step.output_mapping {
            variables.entry(variable.as_str().into()).or_default().push(StepIx::new(at));
        }
    }
    variables
}

fn check_step(
    number: StepIx,
    step: UncheckedStep,
    names: &StepNames,
    variables: &BTreeMap<Arc<str>, Vec<StepIx>>,
) -> Result<ToolExecution, PlanError> {
    let mut checking = Checking { number, id: step.id, names, variables, before: Vec::new() };
    checking.depend(&step.depends_on)?;
    let is_loop = step.for_each.is_some();
    let for_each = step.for_each.map(|it| checking.for_each(it)).transpose()?;
    let template = checking.template(&step.parameters, &|target| match target {
        Target::Item | Target::Index => is_loop,
        _ => false,
    })?;
    let when = step.when.map(|it| checking.condition(&it)).transpose()?;
    let compensate =
        step.compensate.map(|it| checking.compensation(*it, is_loop)).transpose()?.map(Box::new);
    let output_mapping = checking.mappings(step.output_mapping)?;
    let Checking { id, before: depends_on, .. } = checking;
    let kind = step.plan.map_or_else(|| StepKind::of(&step.tool), StepKind::Plan);
    let (tool, parameters, policy) = (step.tool, step.parameters, step.policy);
    Ok(ToolExecution {
        id,
        tool,
        kind,
        parameters,
        template,
        depends_on,
        output_mapping,
        policy,
        when,
        for_each,
        compensate,
    })
}

/// A step that is being checked.
struct Checking<'a> {
    number: StepIx,
    id: StepId,
    names: &'a StepNames,
    variables: &'a BTreeMap<Arc<str>, Vec<StepIx>>,
    /// What it depends on, sorted.
    before: Vec<StepIx>,
}

impl Checking<'_> {
    fn outside(&self, on: &str) -> PlanError {
        PlanError::Order { step: self.id.clone(), on: on.to_owned() }
    }

    fn depend(&mut self, on: &[StepId]) -> Result<(), PlanError> {
        self.before.reserve_exact(on.len());
        for on in on {
            let number = self.names.steps.get(on).copied().filter(|it| *it < self.number);
            self.before.push(number.ok_or_else(|| self.outside(on.as_str()))?);
        }
        self.before.sort_unstable();
        self.before.dedup();
        Ok(())
    }

    /// Returns whether what a target stands for is known once the step begins.
    fn is_known(&self, target: &Target) -> bool {
        match target {
            Target::Step(on) => self.before.binary_search(on).is_ok(),
            Target::Variable(name) => self
                .variables
                .get(name)
                .is_some_and(|by| by.iter().all(|it| self.before.binary_search(it).is_ok())),
            Target::Input => true,
            Target::Item | Target::Index => false,
        }
    }

    /// Parses a value whose holes look at what is known, or at what is `besides`.
    fn template(
        &self,
        value: &Arc<Value>,
        besides: &dyn Fn(&Target) -> bool,
    ) -> Result<Template, PlanError> {
        let template = Template::parse(value, self.names).map_err(|mut errors| {
            let error = errors.swap_remove(0);
            PlanError::Template { step: self.id.clone(), error }
        })?;
        let mut outside = None;
        template.references(&mut |reference| {
            if !self.is_known(&reference.target) && !besides(&reference.target) {
                outside = Some(Arc::clone(&reference.text));
            }
        });
        match outside {
            Some(text) => Err(self.outside(&text)),
            None => Ok(match template {
                // One copy is enough.
                Template::Literal(literal) if literal == *value => {
                    Template::Literal(Arc::clone(value))
                }
                template => template,
            }),
        }
    }

    fn for_each(&self, written: String) -> Result<ForEach, PlanError> {
        let value = Arc::new(Value::String(written.clone()));
        match self.template(&value, &|_| false)? {
            Template::Whole(list) => Ok(ForEach { written, list }),
            _ => Err(PlanError::ForEach(self.id.clone())),
        }
    }

    fn condition(&self, written: &str) -> Result<Condition, PlanError> {
        let condition = Condition::parse(written, self.names)
            .map_err(|error| PlanError::Condition { step: self.id.clone(), error })?;
        match condition.targets().iter().find(|it| !self.is_known(it)) {
            Some(_) => Err(self.outside(written)),
            None => Ok(condition),
        }
    }

    fn compensation(
        &self,
        written: UncheckedCompensation,
        is_loop: bool,
    ) -> Result<Compensation, PlanError> {
        let UncheckedCompensation { tool, parameters, policy } = written;
        let template = self.template(&parameters, &|target| match target {
            Target::Step(step) => *step == self.number,
            Target::Item | Target::Index => is_loop,
            _ => false,
        })?;
        Ok(Compensation { tool, parameters, template, policy })
    }

    fn mappings(&self, written: Vec<(String, String)>) -> Result<Vec<Mapping>, PlanError> {
        let mappings = written.into_iter().map(|(written, variable)| match written.parse() {
            Ok(path) => Ok(Mapping { written, path, variable: variable.into() }),
            Err(_) => Err(PlanError::Mapping { step: self.id.clone(), path: written }),
        });
        mappings.collect()
    }
}

impl ToolExecution {
    /// Returns whether the step, once ready, waits for somebody before anything is called.
    pub fn asks_first(&self) -> bool {
        self.kind == StepKind::Wait || self.policy.requires_approval
    }

    /// Returns what is called for a part of the step.
    pub fn callee(&self, part: Part) -> Callee<'_> {
        match &self.compensate {
            Some(undo) if part.undo => Callee {
                tool: &undo.tool,
                kind: StepKind::of(&undo.tool),
                template: &undo.template,
                policy: &undo.policy,
            },
            _ => Callee {
                tool: &self.tool,
                kind: self.kind,
                template: &self.template,
                policy: &self.policy,
            },
        }
    }
}

impl StepKind {
    /// Returns who carries out a call of `tool`.
    pub fn of(tool: &ToolName) -> Self {
        match tool.as_str() {
            "flow.sleep" => Self::Sleep,
            "flow.wait" => Self::Wait,
            _ => Self::Call,
        }
    }
}

/// What the names in a plan's templates and dependencies mean.
///
/// A step's id goes first; failing that, a tool that exactly one step uses.
#[derive(Clone, Debug, Default)]
pub struct StepNames {
    steps: BTreeMap<StepId, StepIx>,
    /// The step that uses the tool, or nothing where several do.
    tools: BTreeMap<ToolName, Option<StepIx>>,
}

impl StepNames {
    /// Numbers the steps in the order given.
    pub fn new<'a>(
        steps: impl IntoIterator<Item = (&'a StepId, &'a ToolName)>,
    ) -> Result<Self, PlanError> {
        let mut names = Self::default();
        for (at, (id, tool)) in steps.into_iter().enumerate() {
            let number = StepIx::new(at);
            if names.steps.insert(id.clone(), number).is_some() {
                return Err(PlanError::Duplicate(id.clone()));
            }
            names.tools.entry(tool.clone()).and_modify(|it| *it = None).or_insert(Some(number));
            if let Some(plain) = plain_name(tool) {
                names.tools.entry(plain).and_modify(|it| *it = None).or_insert(Some(number));
            }
        }
        Ok(names)
    }

    /// Returns the step that `name` means in a dependency.
    pub fn find(&self, name: &str) -> Option<StepIx> {
        self.step(name).or_else(|| self.tool(name))
    }
}

/// Returns a tool's name without its set.
fn plain_name(tool: &ToolName) -> Option<ToolName> {
    tool.as_str().split_once('.').and_then(|(_, plain)| plain.parse().ok())
}

impl Names for StepNames {
    fn step(&self, name: &str) -> Option<StepIx> {
        self.steps.get(name).copied()
    }

    fn tool(&self, name: &str) -> Option<StepIx> {
        self.tools.get(name).copied().flatten()
    }
}

impl Plan {
    /// Returns what the plan is for and where it came from.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Returns the same steps as another plan: another version, another request.
    #[must_use]
    pub fn with_about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// Returns the plan with more for its author to know.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<Diagnostic>) -> Self {
        self.diagnostics.extend(warnings);
        self
    }

    /// Returns the plan's identifier.
    pub fn id(&self) -> PlanId {
        self.about.id
    }

    /// Returns the steps, in topological order.
    pub fn steps(&self) -> &[ToolExecution] {
        &self.steps
    }

    /// Returns a step by its number.
    pub fn step(&self, number: StepIx) -> &ToolExecution {
        &self.steps[number.get()]
    }

    /// Returns the number of the step called `id`.
    pub fn number(&self, id: &StepId) -> Option<StepIx> {
        self.numbers.get(id).copied()
    }

    /// Returns the steps that depend on a step.
    pub fn dependents(&self, number: StepIx) -> &[StepIx] {
        &self.dependents[number.get()]
    }

    /// Returns every tool that the plan calls, compensations included.
    pub fn tools(&self) -> impl Iterator<Item = &ToolName> {
        self.steps.iter().flat_map(|it| {
            let own = (!matches!(it.kind, StepKind::Plan(_))).then_some(&it.tool);
            own.into_iter().chain(it.compensate.as_ref().map(|it| &it.tool))
        })
    }

    /// Returns every plan that the plan executes.
    pub fn sub_plans(&self) -> impl Iterator<Item = PlanId> {
        self.steps.iter().filter_map(|it| match it.kind {
            StepKind::Plan(id) => Some(id),
            _ => None,
        })
    }

    /// Returns every variable and the steps that fill it, in plan order.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Vec<StepIx>> {
        &self.variables
    }

    /// Returns what the author should know.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns what may run at the same time: each step's layer is one more than the highest
    /// among those it depends on.
    pub fn layers(&self) -> Vec<Vec<StepIx>> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.steps.len());
        let mut layers: Vec<Vec<StepIx>> = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let depth = step.depends_on.iter().map(|it| depths[it.get()] + 1).max().unwrap_or(0);
            if layers.len() == depth {
                layers.push(Vec::new());
            }
            layers[depth].push(StepIx::new(at));
            depths.push(depth);
        }
        layers
    }

    /// Returns the plan as a store keeps it.
    pub fn to_unchecked(&self) -> UncheckedPlan {
        let steps = self.steps.iter().map(|step| UncheckedStep {
            id: step.id.clone(),
            tool: step.tool.clone(),
            parameters: step.parameters.clone(),
            depends_on: step.depends_on.iter().map(|it| self.step(*it).id.clone()).collect(),
            output_mapping: step
                .output_mapping
                .iter()
                .map(|it| (it.written.clone(), (*it.variable).to_owned()))
                .collect(),
            policy: step.policy.clone(),
            plan: match step.kind {
                StepKind::Plan(id) => Some(id),
                _ => None,
            },
            when: step.when.as_ref().map(|it| it.source().to_owned()),
            for_each: step.for_each.as_ref().map(|it| it.written.clone()),
            compensate: step.compensate.as_ref().map(|it| {
                Box::new(UncheckedCompensation {
                    tool: it.tool.clone(),
                    parameters: Arc::clone(&it.parameters),
                    policy: it.policy.clone(),
                })
            }),
        });
        UncheckedPlan {
            about: self.about.clone(),
            steps: steps.collect(),
            diagnostics: self.diagnostics.clone(),
        }
    }

    /// Returns the plan as the JSON text that stores keep.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.to_unchecked()).expect("plans are JSON")
    }

    /// Reads a plan from the JSON text that stores keep.
    pub fn from_json(text: &str) -> Result<Self, StoredPlanError> {
        Ok(serde_json::from_str::<UncheckedPlan>(text)?.try_into()?)
    }
}

/// Why what a store keeps is not a plan.
#[derive(Debug, thiserror::Error)]
pub enum StoredPlanError {
    /// It is not the JSON of a plan.
    #[error("the stored plan cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is the JSON of a plan that cannot run.
    #[error("the stored plan cannot run: {0}")]
    Plan(#[from] PlanError),
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Steps as identifiers, dependencies and parameters, and what is wrong with them.
    type Case<'a> = (&'a [(&'a str, &'a [&'a str], Value)], &'a str);

    fn plan(steps: &[(&str, &[&str], Value)]) -> Result<Plan, PlanError> {
        let steps = steps.iter().map(|(id, on, parameters)| UncheckedStep {
            id: id.parse().unwrap(),
            tool: "set.tool".parse().unwrap(),
            parameters: Arc::new(parameters.clone()),
            depends_on: on.iter().map(|it| it.parse().unwrap()).collect(),
            output_mapping: vec![("_id".to_owned(), format!("{id}_id"))],
            policy: StepPolicy::default(),
            plan: None,
            when: None,
            for_each: None,
            compensate: None,
        });
        let about = About {
            id: "plan_1_aaaaaaaaa".parse().unwrap(),
            request: "req_1_aaaaaaaaa".parse().unwrap(),
            version: 1,
            query: "q".to_owned(),
            planner: "explicit".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        let steps = steps.collect();
        Plan::try_from(UncheckedPlan { about, steps, diagnostics: Vec::new() })
    }

    #[test]
    fn a_plan_survives_the_store() {
        let parameters = json!({ "z": "{{a._id}}", "a": [1.5, 9_007_199_254_740_993_u64] });
        let plan = plan(&[("a", &[], json!({})), ("b", &["a"], parameters)]).unwrap();
        let again = Plan::from_json(&plan.to_json()).unwrap();
        assert_eq!(again.to_unchecked(), plan.to_unchecked());
        assert_eq!(again.steps()[1].parameters.to_string(), plan.steps()[1].parameters.to_string());
    }

    #[test]
    fn what_cannot_run_is_no_plan() {
        assert_eq!(plan(&[]).unwrap_err(), PlanError::Empty);
        let cases: [Case<'_>; 6] = [
            (&[("a", &["b"], json!({})), ("b", &[], json!({}))], "`a` depends on `b`"),
            (&[("a", &["a"], json!({}))], "`a` depends on `a`"),
            (&[("a", &[], json!({})), ("a", &[], json!({}))], "two steps"),
            (&[("a", &[], json!({})), ("b", &[], json!("{{a}}"))], "`b` depends on `{{a}}`"),
            (&[("a", &[], json!("{{c}}"))], "names no step"),
            (&[("a", &[], json!({})), ("b", &[], json!("{{vars.a_id}}"))], "{{vars.a_id}}"),
        ];
        for (steps, expected) in cases {
            let err = plan(steps).unwrap_err().to_string();
            assert!(err.contains(expected), "{err}");
        }
    }

    #[test]
    fn layers_are_longest_paths() {
        let none = json!({});
        let plan = plan(&[
            ("a", &[], none.clone()),
            ("b", &["a"], none.clone()),
            ("c", &[], none.clone()),
            ("d", &["b", "c"], none),
        ])
        .unwrap();
        let layers: Vec<Vec<usize>> =
            plan.layers().iter().map(|it| it.iter().map(|it| it.get()).collect()).collect();
        assert_eq!(layers, [vec![0, 2], vec![1], vec![3]]);
        assert_eq!(plan.dependents(StepIx::new(0)), [StepIx::new(1)]);
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        let policy = RetryPolicy { max_attempts: 5, jitter: false, ..RetryPolicy::default() };
        let waits: Vec<_> = (1..=5).map(|it| policy.delay(it, 0)).collect();
        let ms = |it| Some(TimeDelta::milliseconds(it));
        assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), None]);
        let policy = RetryPolicy { max_attempts: 500, ..policy };
        assert_eq!(policy.delay(400, 7), ms(30_000));
        let jittered = RetryPolicy { jitter: true, ..policy }.delay(400, 7).unwrap();
        assert!(jittered >= TimeDelta::seconds(15) && jittered <= TimeDelta::seconds(30));
    }
}
