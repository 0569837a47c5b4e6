use super::*;

pub(super) fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_timestamp_millis(ms).unwrap()
}

pub(super) fn worker_id(n: u32) -> WorkerId {
    format!("work_{n}_aaaaaaaaa").parse().unwrap()
}

pub(super) struct Story {
    pub(super) execution: Execution,
    pub(super) now: i64,
    pub(super) commands: u32,
    pub(super) child: Option<(ExecutionId, Finding)>,
}

/// Returns a step of a plan. `fields` replace the defaults of this function.
pub(super) fn make_step(id: &str, needs: &[&str], fields: Value) -> Value {
    let mut step = json!({ "id": id, "tool": format!("shop.{id}"), "parameters": {},
        "depends_on": needs, "policy": { "effect": "read" } });
    for (name, value) in fields.as_object().unwrap() {
        step[name] = value.clone();
    }
    step
}

pub(super) fn make_policy(fields: Value) -> Value {
    json!({ "policy": fields })
}

impl Story {
    pub(super) fn with_options(steps: &[Value], options: ExecutionOptions) -> Self {
        Self::retry_of_calls(steps, options, Vec::new())
    }

    pub(super) fn retry_of_calls(
        steps: &[Value],
        options: ExecutionOptions,
        call_keys: Vec<CallKey>,
    ) -> Self {
        let plan = json!({
            "about": { "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "", "planner": "explicit", "created_at": 0 },
            "steps": steps,
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        let created =
            Created { call_keys, ..Created::new(plan.id(), plan.info().request, options) };
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let (execution, _) =
            machine::create_execution_from(id, &plan, created, None, at_ms(0)).unwrap();
        Self { execution, now: 0, commands: 0, child: None }
    }

    pub(super) fn from_steps(steps: &[Value]) -> Self {
        Self::with_options(steps, ExecutionOptions::default()).claim_by(1)
    }

    pub(super) fn with_input(mut self, input: Input) -> Self {
        machine::decide(&mut self.execution, input, at_ms(self.now));
        self
    }

    pub(super) fn claim_by(self, n: u32) -> Self {
        let node = format!("node{n}").into();
        self.with_input(Input::Claimed { worker: worker_id(n), node, commands_follow: false })
    }

    pub(super) fn advance_ms(mut self, ms: i64) -> Self {
        self.now += ms;
        self.with_input(Input::Woken)
    }

    pub(super) fn find_task(&self, name: &str) -> Task {
        let (name, item) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((name, item)) => (name, Some(item.parse().unwrap())),
            None => (name, None),
        };
        let step = self.execution.plan().step_number(&name.parse().unwrap()).unwrap();
        Task { step, part: Part { item, undo: false } }
    }

    pub(super) fn end_call(self, task: Task, result: Result<Value, ToolError>) -> Self {
        let attempts = self.execution.task(task).map_or(1, |step| step.attempts);
        let attempt = Attempt::nth_after(attempts - 1);
        let result = result.map(CallOutput::from);
        self.with_input(Input::Ended { task, attempt, result })
    }

    pub(super) fn succeed_step(self, name: &str, output: Value) -> Self {
        let task = self.find_task(name);
        self.end_call(task, Ok(output))
    }

    pub(super) fn fail_step(self, name: &str, error: ToolError) -> Self {
        let task = self.find_task(name);
        self.end_call(task, Err(error))
    }

    pub(super) fn undo_step(self, name: &str, result: Result<Value, ToolError>) -> Self {
        let task = self.find_task(name).compensation();
        self.end_call(task, result)
    }

    pub(super) fn command(self, command: Command) -> Self {
        self.send_command(None, command)
    }

    pub(super) fn command_by(self, actor: Actor, command: Command) -> Self {
        self.send_command(Some(Arc::new(actor)), command)
    }

    fn send_command(mut self, by: Option<Arc<Actor>>, command: Command) -> Self {
        self.commands += 1;
        let id = format!("cmd_{}_aaaaaaaaa", self.commands).parse().unwrap();
        let (execution, at) = (self.execution.id(), at_ms(self.now));
        self.with_input(Input::Command(SentCommand { id, execution, at, by, command }))
    }

    /// Writes the findings as if worker 1 were alive, one on each line.
    pub(super) fn finding_lines(&self) -> String {
        self.finding_lines_with(&[], &[worker_id(1)], None)
    }

    pub(super) fn finding_lines_with(
        &self,
        inbox: &[SentCommand],
        workers: &[WorkerId],
        toolbox: Option<&Toolbox>,
    ) -> String {
        let owner = self.execution.owner().map(|owner| owner.worker);
        let due = owner.is_none().then(|| at_ms(0));
        let head = ExecutionHead::from_execution(&self.execution, owner, due);
        let tool = LimitedCalls::Tool("shop.limited".parse().unwrap());
        let rule = LimitRule { calls: tool, key: None, concurrency: Some(1), rate: None };
        let limits = CallLimits::new(vec![rule]);
        let children = &BTreeMap::from_iter(self.child.clone());
        let head = Some(&head);
        let node_facts = NodeFacts { head, inbox, workers, limits: &limits, children, toolbox };
        draw_findings(&find_findings(
            &self.execution,
            Some(&node_facts),
            at_ms(self.now),
            MAX_FINDINGS,
        ))
    }
}

pub(super) fn draw_findings(findings: &[Finding]) -> String {
    let mut lines = String::new();
    for finding in findings {
        let Finding { code, message, remedies, cause, .. } = finding;
        let severity = format!("{:?}", finding.severity).to_uppercase();
        let kind = format!("{:?}", finding.kind).to_uppercase();
        let cause = cause.map(|seq| format!("@{seq}")).unwrap_or_default();
        let remedies: Vec<String> = remedies
            .iter()
            .map(|remedy| {
                let command = remedy.command.clone().unwrap_or_default();
                let command = command.replace("exec_1_aaaaaaaaa", "E").replace("faber ", "");
                let danger = if remedy.is_dangerous { "!" } else { "" };
                format!("{command}{danger}").replace("plan_1_aaaaaaaaa", "P")
            })
            .collect();
        let _ = writeln!(lines, "  {severity} {kind} {code} {cause}: {message}");
        if !remedies.is_empty() {
            let _ = writeln!(lines, "    -> {}", remedies.join(" | "));
        }
    }
    lines
}

pub(super) fn make_error(code: &str, message: &str) -> ToolError {
    // These codes of Faber are constants. Any other code is one that a tool chose.
    let retryable_codes = [
        ErrorCode::FAILED,
        ErrorCode::TIMEOUT,
        ErrorCode::UNAVAILABLE,
        ErrorCode::INACTIVE,
        ErrorCode::OUTCOME_UNKNOWN,
        ErrorCode::INVALID_PARAMETERS,
        ErrorCode::OUTPUT_TOO_LARGE,
    ];
    let found =
        retryable_codes.into_iter().find(|retryable_codes| retryable_codes.as_str() == code);
    ToolError::new(found.unwrap_or_else(|| ErrorCode::custom(code.to_owned())), message)
}

pub(super) fn approve_command(step: &str, approved: bool) -> Command {
    let step = step.parse().unwrap();
    Command::Approve { step, item: None, approved, comment: None }
}

pub(super) fn once_tool() -> Value {
    make_policy(json!({ "effect": "once" }))
}

pub(super) fn undoable_step(effect: &str) -> Value {
    json!({ "policy": { "effect": effect }, "compensate": { "tool": "shop.refund",
        "parameters": { "id": "{{a.id}}" }, "policy": { "effect": "idempotent" } } })
}
