// Written by `npm run types` from `docs/errors.md`. Do not edit.

/** What each code means, and what to do. */
export const CODES: Record<string, readonly [string, string]> = {
  "plan.invalid_json": [
    "the plan is not JSON, or a field has the wrong kind of value",
    "correct it at path"
  ],
  "plan.unknown_field": [
    "there is no such field; the rest of the plan is checked all the same",
    "take the name from the help"
  ],
  "plan.empty": [
    "the plan has no steps",
    "add at least one to tools"
  ],
  "plan.too_large": [
    "the plan exceeds a limit: its steps, its dependencies, or how deep its JSON nests",
    "see the help"
  ],
  "plan.missing_tool": [
    "a step names no tool and no plan, or has more than one of name, toolName and plan",
    "write exactly one of them"
  ],
  "plan.two_tools": [
    "a step names no tool and no plan, or has more than one of name, toolName and plan",
    "write exactly one of them"
  ],
  "plan.unknown_tool": [
    "no toolset has this tool",
    "take the nearest name from the help, or configure the toolset that has it"
  ],
  "plan.inactive_tool": [
    "the tool belongs to a toolset that is not active",
    "activate the toolset"
  ],
  "plan.not_callable": [
    "the tool is known, but nothing says how to call it",
    "give it a run in the configuration"
  ],
  "plan.invalid_step_id": [
    "an id that a step id cannot be, or a reserved word",
    "choose another"
  ],
  "plan.duplicate_step": [
    "two steps have the same id",
    "rename one, or leave the id out"
  ],
  "plan.invalid_dependency": [
    "dependsOn is not null, a name, or a list of names",
    "write one of these"
  ],
  "plan.unknown_dependency": [
    "dependsOn names neither a step nor a tool that exactly one step uses",
    "correct the name; where several steps use the tool, name the step"
  ],
  "plan.cycle": [
    "steps wait for each other; the message shows the cycle, a -> b reads \"a depends on b\"",
    "remove one of the dependencies; a template is one too"
  ],
  "plan.understood": [
    "warning: what a model wrote was read as it was meant",
    "nothing, if it was; the message says what was done"
  ],
  "plan.order_differs": [
    "warning: executionOrder is not the computed order, or names no step",
    "nothing, the computed order holds; or leave executionOrder out"
  ],
  "plan.missing_parameter": [
    "a required parameter is not there",
    "add it"
  ],
  "plan.invalid_parameters": [
    "a parameter does not fit the tool's schema",
    "correct the value at path"
  ],
  "plan.parameters_as_text": [
    "warning: the parameters are text that holds the JSON of an object; they are read as that object",
    "write the object itself"
  ],
  "plan.number_rounded": [
    "warning: a number is too large for 64 bits and becomes a double",
    "write it as text if every digit matters"
  ],
  "plan.invalid_template": [
    "braces around something that is not a path",
    "correct the path, or write {{{{ for literal braces"
  ],
  "plan.unknown_step_in_template": [
    "a template names neither a step nor a tool that exactly one step uses; or {{item}} or {{index}} stands outside a loop",
    "correct the name, or give the step a forEach"
  ],
  "plan.path_not_in_output": [
    "warning: by its schema, the output has no such field",
    "correct the path"
  ],
  "plan.path_not_declared": [
    "warning: the schema of the output says which fields there are, and not that one; it does not rule out others",
    "correct the path, or nothing where it is there all the same"
  ],
  "plan.invalid_mapping": [
    "outputMapping does not map paths to variables",
    "write {\"path in the output\": \"variable\"}"
  ],
  "plan.unknown_variable": [
    "a template asks for a variable that no step maps",
    "map it, or correct its name"
  ],
  "plan.invalid_retry": [
    "a number of retry, or timeoutMs, is out of range",
    "take one from the range in the message"
  ],
  "plan.invalid_timeout": [
    "a number of retry, or timeoutMs, is out of range",
    "take one from the range in the message"
  ],
  "plan.invalid_max_parallel": [
    "maxParallel or cacheTtlMs is out of range, or the tool's effect is not READ, so that it cannot be cached",
    "take a number from the range in the message, or leave the field out"
  ],
  "plan.invalid_cache": [
    "maxParallel or cacheTtlMs is out of range, or the tool's effect is not READ, so that it cannot be cached",
    "take a number from the range in the message, or leave the field out"
  ],
  "plan.max_parallel_unused": [
    "warning: maxParallel without forEach says nothing",
    "leave it out"
  ],
  "plan.invalid_condition": [
    "when is not a condition, or names no step",
    "see the help"
  ],
  "plan.invalid_for_each": [
    "forEach is not one whole template",
    "see the help, and loops"
  ],
  "plan.not_a_list": [
    "warning: by its schema, what forEach names is no list",
    "correct the path"
  ],
  "plan.unknown_plan": [
    "plan names neither a plan's id nor a saved plan",
    "take the nearest name from the help, or save the plan first"
  ],
  "plan.too_deep": [
    "more than 16 plans inside one another",
    "let fewer plans execute others"
  ],
  "plan.invalid_on_error": [
    "onError is not one of its words",
    "take one of them, or leave it out for fail"
  ],
  "plan.done_twice": [
    "only of planning anew: the new version would do something again whose effect is ONCE and that was done, or might, for the items of a list that is not known yet",
    "nothing: it goes back to the model; keep the step as it was"
  ],
  "plan.assumed_parameter": [
    "warning of the offline planner: a parameter was not given, and its value was derived by a stated rule",
    "say it in the query, as the help shows"
  ],
  "plan.ignored_words": [
    "warning of the offline planner: some words of the query led to nothing",
    "say it in other words, or leave them out"
  ],
  "plan.more": [
    "there are more problems than are shown",
    "mend those that are shown first"
  ],
  "plan.internal": [
    "a mistake of the compiler, not of the plan",
    "report it, with the plan"
  ],
  "tool.failed": [
    "the tool reported this error, or the output of an MCP tool does not fit the schema that its server declares",
    "fix the cause and retry"
  ],
  "tool.timeout": [
    "no answer within timeoutMs, or neither an answer nor progress within idleTimeoutMs",
    "raise the limit, or find out why the tool is slow"
  ],
  "tool.cancelled": [
    "the call was cut off because the execution was cancelled",
    "nothing"
  ],
  "tool.unavailable": [
    "the tool's source cannot be reached: a server that does not start or answer, a program that is not there",
    "mend the source; faber doctor names it"
  ],
  "tool.inactive": [
    "the tool's toolset was deactivated after the plan was made",
    "activate the toolset and execute again"
  ],
  "tool.invalid_parameters": [
    "the parameters, with their templates filled in, do not fit the tool's schema",
    "look at resolvedParameters: often an earlier output lacks a field"
  ],
  "tool.output_too_large": [
    "the output exceeds limits.output_bytes (1 MiB), counted as the JSON text that the log keeps: a control character takes six bytes. The tool is not called again",
    "let the tool return less, or raise the limit"
  ],
  "tool.outcome_unknown": [
    "a tool with the effect ONCE gave no answer: the call may have taken effect, or may yet",
    "look at the outside world before you execute it again"
  ],
  "template.unresolved": [
    "an output or the input lacks the field that a template asks for, and the step's tool has an effect or strictTemplates is on",
    "correct the template, give the input, or make the earlier step return the field; strictTemplates: false passes the text as it was written"
  ],
  "step.not_a_list": [
    "forEach found something that is not a list",
    "look at the step that returns it, or at the input"
  ],
  "step.rejected": [
    "a person refused the step",
    "nothing, or execute again"
  ],
  "execution.deadline": [
    "the execution exceeded its deadlineMs",
    "raise it, or make the plan shorter"
  ],
  "NOT_FOUND": [
    "an id names nothing, or is not an id. Queries answer null instead",
    "check the id; faber list requests shows what there is"
  ],
  "INVALID_PLAN": [
    "the plan does not compile; extensions.diagnostics has every reason",
    "see diagnostics"
  ],
  "INVALID_ARGUMENT": [
    "an argument has a value that makes no sense",
    "correct the one that the message names"
  ],
  "CONFLICT": [
    "it contradicts what is there: an idempotency key with other options, a name that is taken, a state that does not allow it",
    "see the message"
  ],
  "PLANNER_UNAVAILABLE": [
    "what the planner needs is not configured or cannot be reached",
    "configure what the message names; faber doctor checks it"
  ],
  "NO_PLAN_FOUND": [
    "the planner found no plan for the query; the message says what it could not fill, and the nearest tools, or quotes the model that declined",
    "say more in the query, or write the plan yourself"
  ],
  "LIMIT_EXCEEDED": [
    "the operation exceeds a limit: of the query, of an input or a signal (1 MiB), of the different words of a search (64), of executions read together without parts (32 MiB), of what an execution takes over in a retry (8 MiB), of the signals (1,000) or commands (1,000) that wait for one execution, of what a token may do, of calls of a tool within half a minute",
    "ask for less, or raise the limit that the message names"
  ],
  "UNAUTHENTICATED": [
    "the server wants a token, and got none that it knows",
    "show it one of the tokens under access in its configuration; faber takes it from FABER_TOKEN"
  ],
  "FORBIDDEN": [
    "the token's role does not allow this, the plan or call uses a tool that is not among its tools, a toolset that is to be added names a secret that it may not, or the server has no tokens and you are on another machine",
    "use another token, or change access in the server's configuration"
  ],
  "LOGIN_REFUSED": [
    "only of faber login: whoever grants tokens for an MCP server, or the person, said no, or nobody came back in time",
    "do what the message says; see logging in"
  ],
  "SERVER_UNAVAILABLE": [
    "only of the command line: the server that --server names does not answer, or is no faber serve; the address of --listen cannot be had; what faber login or faber models pull needs cannot be reached",
    "start faber serve there, or name another address; the message says which"
  ],
  "DETACHED": [
    "only of the command line: Ctrl-C; the execution is in the store, and its id in executionId",
    "faber watch watches it, faber execute carries it on where no server does"
  ],
  "STORE_UNAVAILABLE": [
    "the store cannot be reached, or did not answer in time; a write may still have happened",
    "try again, with the same idempotencyKey if it starts an execution"
  ],
  "TOOL_UNAVAILABLE": [
    "only of the command line: this process lacks a tool of the plan, or the tool's toolset has failed; nothing was created",
    "add the toolset to the configuration file that the message names, or name another file with --config; --wait waits for the tool"
  ],
  "INTERNAL": [
    "a fault in Faber; the message has a reference and nothing else",
    "look up the reference in the log and report it"
  ]
};
