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
    diagnostic::Diagnostic,
    id::{PlanId, RequestId, StepId, StepIx, ToolName},
    limits,
    template::{Names, Path, Target, Template, TemplateError},
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
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self {
            effect: Effect::default(),
            timeout_ms: u64::try_from(limits::STEP_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            retry: RetryPolicy::default(),
            on_error: OnError::default(),
            requires_approval: false,
        }
    }
}

impl StepPolicy {
    /// Returns how long an attempt may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
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
    let UncheckedStep { id, tool, parameters, depends_on, output_mapping, policy } = step;
    let order = |on: &str| PlanError::Order { step: id.clone(), on: on.to_owned() };
    let mut before = Vec::with_capacity(depends_on.len());
    for on in &depends_on {
        let on_number = names.steps.get(on).copied().filter(|it| *it < number);
        before.push(on_number.ok_or_else(|| order(on.as_str()))?);
    }
    before.sort_unstable();
    before.dedup();
    let template = Template::parse(&parameters, names).map_err(|mut errors| {
        let error = errors.swap_remove(0);
        PlanError::Template { step: id.clone(), error }
    })?;
    let mut outside = None;
    template.references(&mut |reference| {
        let is_inside = match &reference.target {
            Target::Step(on) => before.binary_search(on).is_ok(),
            Target::Variable(name) => variables
                .get(name)
                .is_some_and(|by| by.iter().all(|it| before.binary_search(it).is_ok())),
        };
        if !is_inside {
            outside = Some(reference.text.clone());
        }
    });
    if let Some(text) = outside {
        return Err(order(&text));
    }
    let output_mapping = output_mapping
        .into_iter()
        .map(|(written, variable)| match written.parse() {
            Ok(path) => Ok(Mapping { written, path, variable: variable.into() }),
            Err(_) => Err(PlanError::Mapping { step: id.clone(), path: written }),
        })
        .collect::<Result<_, _>>()?;
    let template = match template {
        // One copy is enough.
        Template::Literal(literal) if literal == parameters => {
            Template::Literal(Arc::clone(&parameters))
        }
        template => template,
    };
    let kind = StepKind::of(&tool);
    let depends_on = before;
    Ok(ToolExecution { id, tool, kind, parameters, template, depends_on, output_mapping, policy })
}

impl ToolExecution {
    /// Returns whether the step, once ready, waits for somebody before anything is called.
    pub fn asks_first(&self) -> bool {
        self.kind == StepKind::Wait || self.policy.requires_approval
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
