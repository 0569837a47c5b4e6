// Written by `npm run types` from `docs/errors.md`. Do not edit.

/** For each code of an error, its meaning and what to do about it. */
export const CODES: Record<string, readonly [string, string]> = {
  "plan.invalid_json": [
    "the plan is not JSON, or a field has the wrong type",
    "correct it at path"
  ],
  "plan.unknown_field": [
    "the field does not exist",
    "take the name from the help"
  ],
  "plan.empty": [
    "the plan has no steps",
    "add a step to tools"
  ],
  "plan.too_large": [
    "the plan exceeds a limit",
    "see the help"
  ],
  "plan.missing_tool": [
    "a step names no tool and no plan",
    "write name or plan"
  ],
  "plan.two_tools": [
    "a step has several of name, toolName and plan",
    "keep exactly one of them"
  ],
  "plan.more": [
    "there are more problems than the compiler shows",
    "correct the shown ones first"
  ],
  "plan.understood": [
    "warning: Faber repaired the reply of a model",
    "check the plan; the message names the repair"
  ],
  "plan.internal": [
    "an error of the compiler, not of the plan",
    "report it, with the plan"
  ],
  "plan.unknown_tool": [
    "no toolset has this tool, or its toolset has failed",
    "take the name from the help, or repair the toolset that it names"
  ],
  "plan.inactive_tool": [
    "the tool's toolset is not active",
    "activate the toolset"
  ],
  "plan.not_callable": [
    "the tool has a description but no run",
    "add run in the configuration"
  ],
  "plan.missing_parameter": [
    "a required parameter is missing",
    "add it"
  ],
  "plan.invalid_parameters": [
    "a parameter does not fit the tool's schema, or the expression of flow.compute is wrong",
    "correct the value at path"
  ],
  "plan.parameters_as_text": [
    "warning: the parameters are the JSON text of an object",
    "write the object itself"
  ],
  "plan.number_rounded": [
    "warning: a number above 64 bits becomes a double",
    "write it as text if every digit matters"
  ],
  "plan.guessed_value": [
    "warning: the offline planner guessed a value",
    "write the value after the name of its parameter, as the help shows"
  ],
  "plan.unplaced_words": [
    "warning: the offline planner did not use some words",
    "reword the query, or remove the words"
  ],
  "plan.not_asked": [
    "no clause of the query asks for a call with an effect that a model plans; a warning unless the guard is strict",
    "ask for the action in the query, such as delete issue 4, or remove the step"
  ],
  "plan.model_failed": [
    "warning: the model wrote no valid plan, so this is the draft of the offline planner",
    "check the plan, or reword the query"
  ],
  "plan.invented_value": [
    "warning: neither the query nor an output contains a value of a call with an effect",
    "write the value in the query"
  ],
  "plan.invalid_step_id": [
    "not a valid step id, or a reserved word",
    "choose another id"
  ],
  "plan.duplicate_step": [
    "two steps have the same id",
    "rename one, or remove the id"
  ],
  "plan.invalid_dependency": [
    "dependsOn is not null, a name or a list of names",
    "write one of these"
  ],
  "plan.unknown_dependency": [
    "dependsOn names no step, and no tool of exactly one step",
    "correct the name"
  ],
  "plan.cycle": [
    "steps depend on each other; in a -> b, a depends on b",
    "remove one dependency or template"
  ],
  "plan.order_differs": [
    "warning: executionOrder is not the computed order",
    "remove executionOrder, or ignore it"
  ],
  "plan.invalid_template": [
    "braces around text that is not a path, or a template in the expression of flow.compute",
    "correct the path, or write {{{{; move the template into values"
  ],
  "plan.unknown_step_in_template": [
    "a template names no step, or {{item}} outside a loop",
    "correct the name"
  ],
  "plan.path_not_in_output": [
    "warning: the output's schema excludes this field",
    "correct the path"
  ],
  "plan.path_not_declared": [
    "warning: the output's schema does not list this field",
    "correct the path, if it is wrong"
  ],
  "plan.invalid_mapping": [
    "outputMapping does not map paths to names",
    "write {\"path in the output\": \"variable\"}"
  ],
  "plan.unknown_variable": [
    "no step maps this variable",
    "map it, or correct its name"
  ],
  "plan.invalid_retry": [
    "a number of retry is out of range",
    "use the range in the message"
  ],
  "plan.invalid_timeout": [
    "timeoutMs or idleTimeoutMs is out of range",
    "use the range in the message"
  ],
  "plan.invalid_max_parallel": [
    "maxParallel is out of range",
    "use the range in the message"
  ],
  "plan.max_parallel_unused": [
    "warning: maxParallel without forEach has no effect",
    "remove it"
  ],
  "plan.invalid_cache": [
    "cacheTtlMs is out of range, or the tool is not READ",
    "correct or remove it"
  ],
  "plan.invalid_condition": [
    "when is not a condition, or names no step",
    "see the help"
  ],
  "plan.invalid_for_each": [
    "forEach must be one whole template",
    "see loops"
  ],
  "plan.not_a_list": [
    "warning: the schema of the forEach value is not a list",
    "correct the path"
  ],
  "plan.invalid_on_error": [
    "onError has an unknown value",
    "use fail, continue, ignore or wait"
  ],
  "plan.unknown_plan": [
    "plan is no plan id and no saved name",
    "take the name from the help, or save the plan"
  ],
  "plan.too_deep": [
    "more than 16 nested sub-plans",
    "nest fewer plans"
  ],
  "plan.done_twice": [
    "a replan would repeat an effect",
    "none: the model writes another version"
  ],
  "tool.failed": [
    "the tool reported an error, or its output does not fit its schema",
    "fix the cause and retry"
  ],
  "tool.timeout": [
    "no answer in timeoutMs, or no progress in idleTimeoutMs",
    "raise the limit, or fix the tool"
  ],
  "tool.cancelled": [
    "the execution was cancelled during the call",
    "none"
  ],
  "tool.unavailable": [
    "the server or program of the tool is not reachable",
    "start it; faber doctor names it"
  ],
  "tool.inactive": [
    "the toolset was deactivated after planning",
    "activate it, then execute again"
  ],
  "tool.invalid_parameters": [
    "the rendered parameters do not fit the schema",
    "check resolvedParameters"
  ],
  "tool.output_too_large": [
    "the output exceeds limits.output_bytes as JSON text",
    "return less, or raise the limit"
  ],
  "tool.outcome_unknown": [
    "a ONCE tool gave no answer: the call may have taken effect",
    "check the effect, then faber settle or retry"
  ],
  "template.unresolved": [
    "a template or condition found no value",
    "correct it, give the input, or see below"
  ],
  "step.not_a_list": [
    "the forEach value is not a list",
    "check the step that returns it, or the input"
  ],
  "step.rejected": [
    "a person rejected the step",
    "none"
  ],
  "execution.deadline": [
    "the execution exceeded its deadlineMs",
    "raise it, or shorten the plan"
  ],
  "execution.cancelled": [
    "the execution was cancelled",
    "retry it to run the other steps"
  ],
  "wait.approval": [
    "a step needs the approval of a person",
    "faber approve, or --reject"
  ],
  "wait.decision": [
    "a step with onError: wait failed",
    "approve another attempt, or reject it"
  ],
  "wait.signal": [
    "a step waits for a signal",
    "faber signal"
  ],
  "wait.retry": [
    "an attempt failed, and the next one is not due",
    "wait until until"
  ],
  "wait.sleep": [
    "a step sleeps",
    "wait until until"
  ],
  "wait.child": [
    "a step waits for its child execution; the message names the reason why the child waits",
    "see causeExecutionId"
  ],
  "wait.call": [
    "a tool is being called",
    "wait"
  ],
  "wait.items": [
    "a loop has unfinished items",
    "wait"
  ],
  "wait.limit": [
    "a step waits for a limit on calls, or for maxParallel",
    "wait, or raise the limit"
  ],
  "wait.paused": [
    "the execution was paused",
    "faber resume"
  ],
  "wait.start": [
    "startAt is not due",
    "wait until until"
  ],
  "wait.worker": [
    "no worker runs the execution, or no worker has read an answer",
    "faber execute"
  ],
  "wait.tool": [
    "no worker runs it, and this node lacks a tool",
    "faber doctor"
  ],
  "skip.condition": [
    "when is false; the message has the values that it read",
    "none"
  ],
  "skip.dependency": [
    "a step that it needs did not succeed",
    "see the failure of that step"
  ],
  "skip.execution_failed": [
    "the execution failed before the step could start",
    "see the first failure"
  ],
  "skip.dry_run": [
    "a dry run calls nothing",
    "none"
  ],
  "warning.idempotency_key": [
    "a call whose outcome is unknown had other parameters, so the retry sends a new idempotency key",
    "check at the service whether the first call took effect"
  ],
  "warning.template": [
    "the text of a template without a value was passed to a tool that reads",
    "correct the template"
  ],
  "waits_shortened": [
    "a worker's clock was ahead, so waits and the deadline end earlier",
    "correct the clock"
  ],
  "retried": [
    "a step succeeded only at a later attempt",
    "none"
  ],
  "takeover": [
    "a worker was lost during calls, and another worker continued",
    "none"
  ],
  "compensation.undone": [
    "a step, or items of it, were undone",
    "none"
  ],
  "compensation.not_undone": [
    "a step with compensate was not undone",
    "undo it with the command of the finding"
  ],
  "compensation.unknown": [
    "a call with an unknown outcome was not undone",
    "check the effect"
  ],
  "compensation.none": [
    "the execution undoes other steps, but this step has no compensate",
    "none"
  ],
  "compensation.failed": [
    "the call that undoes a step failed",
    "undo it with the command of the finding"
  ],
  "compensation.off": [
    "the failure undoes nothing, because the execution asks for replans",
    "none"
  ],
  "NOT_FOUND": [
    "no object has this id; queries return null instead",
    "check the id; see faber list requests"
  ],
  "INVALID_PLAN": [
    "the plan does not compile",
    "see extensions.diagnostics"
  ],
  "INVALID_ARGUMENT": [
    "an argument has an invalid value",
    "correct the argument in the message"
  ],
  "CONFLICT": [
    "a key, a name or the state does not allow the operation",
    "see the message"
  ],
  "PLANNER_UNAVAILABLE": [
    "the planner is not configured or not reachable",
    "see the message; run faber doctor"
  ],
  "NO_PLAN_FOUND": [
    "the planner found no plan; the message names the reason",
    "add the missing information to the query, or write the plan"
  ],
  "LIMIT_EXCEEDED": [
    "the operation exceeds a limit",
    "ask for less, or raise the limit in the message"
  ],
  "UNAUTHENTICATED": [
    "the server requires a token, and the request has none or an unknown one",
    "set FABER_TOKEN or the header"
  ],
  "FORBIDDEN": [
    "the token or the machine is not allowed to do this",
    "use another token, or change access"
  ],
  "STORE_UNAVAILABLE": [
    "the store did not answer; a write may have happened",
    "retry, with the same idempotencyKey"
  ],
  "INTERNAL": [
    "a fault in Faber; the message has a reference",
    "find the reference in the log and report it"
  ],
  "LOGIN_REFUSED": [
    "faber login was refused or not completed",
    "see the message"
  ],
  "SERVER_UNAVAILABLE": [
    "a server is not reachable, or --listen cannot be used",
    "start it, or use another address"
  ],
  "DETACHED": [
    "Ctrl-C stopped the command; the execution stays in the store",
    "use faber watch or faber execute"
  ],
  "TOOL_UNAVAILABLE": [
    "this process lacks a tool of the plan; nothing was created",
    "see the message, or use --wait"
  ]
};
