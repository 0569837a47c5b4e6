mod compatibility;

use std::{collections::BTreeMap, fs, path::Path};

use async_graphql::parser::{
    parse_schema,
    types::{InputValueDefinition, TypeKind, TypeSystemDefinition},
};
use engine::access::{Role, required_role};
use expect_test::expect;

use super::*;

/// To renew the golden copy, run `FABER_BLESS=1 cargo test -p graphql`.
#[test]
fn the_golden_copy_is_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.graphql");
    let sdl = schema_text();
    #[expect(clippy::disallowed_methods, reason = "a test asks whether to bless its golden file")]
    let bless = std::env::var("FABER_BLESS").is_ok_and(|value| value == "1");
    if bless {
        fs::write(&path, &sdl).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(sdl.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert!(golden == sdl, "the schema has changed, see `FABER_BLESS`; first at {differs:?}");
}

/// Returns the type and default of every field, argument and input field, by `Type.field` or
/// `Type.field(argument)`. Values of enums and scalars have an empty type.
fn describe_members(sdl: &str) -> BTreeMap<String, String> {
    let mut member_routes = BTreeMap::new();
    for definition in parse_schema(sdl).unwrap().definitions {
        let TypeSystemDefinition::Type(ty) = definition else { continue };
        let name = &ty.node.name.node;
        match &ty.node.kind {
            TypeKind::Object(object) => {
                for field in &object.fields {
                    let path = format!("{name}.{}", field.node.name.node);
                    for argument in &field.node.arguments {
                        let place = format!("{path}({})", argument.node.name.node);
                        member_routes.insert(place, describe_input(&argument.node));
                    }
                    member_routes.insert(path, field.node.ty.node.to_string());
                }
            }
            TypeKind::InputObject(object) => {
                member_routes.extend(object.fields.iter().map(|field| {
                    (format!("{name}.{}", field.node.name.node), describe_input(&field.node))
                }));
            }
            TypeKind::Enum(values) => member_routes.extend(
                values
                    .values
                    .iter()
                    .map(|value| (format!("{name}.{}", value.node.value.node), String::new())),
            ),
            _ => drop(member_routes.insert(name.to_string(), String::new())),
        }
    }
    member_routes
}

fn describe_input(input: &InputValueDefinition) -> String {
    let default = input.default_value.as_ref().map(|value| format!(" = {}", value.node));
    format!("{}{}", input.ty.node, default.unwrap_or_default())
}

#[test]
fn the_fixed_schema_members_are_unchanged() {
    let ours = describe_members(&schema_text());
    for (name, shape) in describe_members(FIXED_SCHEMA) {
        assert_eq!(ours.get(&name), Some(&shape), "{name}");
    }
}

#[test]
fn every_type_and_member_has_a_description() {
    for definition in parse_schema(schema_text()).unwrap().definitions {
        let TypeSystemDefinition::Type(ty) = definition else { continue };
        let name = &ty.node.name.node;
        assert!(ty.node.description.is_some(), "{name}");
        match &ty.node.kind {
            TypeKind::Object(object) => {
                for field in &object.fields {
                    let path = format!("{name}.{}", field.node.name.node);
                    assert!(field.node.description.is_some(), "{path}");
                    for argument in &field.node.arguments {
                        let name = &argument.node.name.node;
                        assert!(argument.node.description.is_some(), "{path}({name})");
                    }
                }
            }
            TypeKind::InputObject(object) => {
                for field in &object.fields {
                    assert!(field.node.description.is_some(), "{name}.{}", field.node.name.node);
                }
            }
            TypeKind::Enum(values) => {
                for value in &values.values {
                    assert!(value.node.description.is_some(), "{name}.{}", value.node.value.node);
                }
            }
            _ => (),
        }
    }
}

/// The parts of the schema on which clients rely. Fields, arguments and values can be added to the
/// schema, but nothing in this text is allowed to change.
const FIXED_SCHEMA: &str = "
scalar JSON
scalar DateTime
type Query {
    request(requestId: ID!): Request
    requests(filter: RequestFilter, first: Int = 20, after: String): RequestConnection!
    plan(planId: ID!): Plan
    plansByRequestId(requestId: ID!): [Plan!]!
    plans(filter: PlanFilter, first: Int = 20, after: String): PlanConnection!
    execution(executionId: ID!): Execution
    executions(filter: ExecutionFilter, first: Int = 20, after: String): ExecutionConnection!
    validatePlan(input: PlanInput!): PlanPayload!
    tools(toolSet: String, search: String, activeOnly: Boolean = false): [Tool!]!
    tool(name: String!): Tool
    toolSets: [ToolSet!]!
    toolSchemas(capabilities: [String!]): JSON!
    parseToolCalls(text: String!): [ToolCall!]!
    toolUsage: [ToolUsage!]!
    toolHistory(toolName: String, first: Int = 100): [ToolResult!]!
    toolkit: Toolkit!
    toolkitSubgraph(names: [String!]!): Toolkit!
    toolkitScore(from: String!, to: String!): Float!
    recommendSubgraph(actions: [String!]!, threshold: Float = 0.5, hops: Int = 0): Toolkit!
    recommendToolsActions(
        actions: [String!]!
        threshold: Float = 0.5
        hops: Int = 0
    ): ToolsAndActions!
}
type Mutation {
    createPlanWithRequestId(query: String!, options: PlanningOptions): Plan!
    createPlan(input: PlanInput!): PlanPayload!
    revisePlan(planId: ID!, input: PlanInput!): PlanPayload!
    executePlan(planId: ID!, options: ExecutionOptions): Execution!
    executeByRequestId(requestId: ID!, options: ExecutionOptions): Execution!
    run(query: String!, planning: PlanningOptions, execution: ExecutionOptions): Execution!
    cancelExecution(executionId: ID!, reason: String): Execution!
    pauseExecution(executionId: ID!): Execution!
    resumeExecution(executionId: ID!): Execution!
    retryExecution(executionId: ID!, fromStep: String): Execution!
    approveStep(executionId: ID!, stepId: String!, approved: Boolean!, comment: String): Execution!
    settleStep(
        executionId: ID!
        stepId: String!
        item: Int
        outcome: SettledOutcome!
        output: JSON
        comment: String
    ): Execution!
    signalExecution(executionId: ID!, name: String!, payload: JSON): Execution!
    savePlan(name: String!, planId: ID!, inputs: JSON): Boolean!
    runSavedPlan(name: String!, input: JSON, options: ExecutionOptions): Execution!
    bulkControl(filter: ExecutionFilter!, action: BulkAction!, perSecond: Float): Int!
    registerTool(input: ToolInput!): Tool!
    removeTool(name: String!): Boolean!
    addToolSet(input: ToolSetInput!): ToolSet!
    removeToolSet(name: String!): Boolean!
    activateToolSets(names: [String!]!): ToolSetChange!
    deactivateToolSets(names: [String!]!): ToolSetChange!
    callTool(name: String!, parameters: JSON): ToolResult!
    setContext(name: String!, data: JSON!): Boolean!
    addAction(input: ActionInput!): ToolkitChange!
    connectTool(name: String!, actions: [EdgeInput!]!): ToolkitChange!
    updateToolkit(yaml: String!): ToolkitChange!
    removeAction(name: String!): Boolean!
    setScore(from: String!, to: String!, score: Float!): Boolean!
}
type Toolkit {
    actions: [Action!]!
    tools: [Tool!]!
    edges: [ToolkitEdge!]!
    mermaid: String!
    dot: String!
    svg: String!
}
type Action { name: String! description: String! }
type ToolkitEdge { from: String! to: String! kind: String! score: Float! }
type ToolkitChange { toolkit: Toolkit! warnings: [String!]! }
type ToolsAndActions { tools: [Tool!]! actions: [Action!]! }
input ActionInput {
    name: String!
    description: String!
    next: [EdgeInput!]
    prev: [EdgeInput!]
    tools: [EdgeInput!]
}
input EdgeInput { name: String! score: Float = 1.0 }
type ToolCall { tool: String! args: JSON! format: String! raw: String! }
type ToolSetChange { changed: [String!]! notFound: [String!]! toolSets: [ToolSet!]! }
type ToolUsage {
    toolName: String!
    calls: Int!
    failures: Int!
    lastCalledAt: DateTime
    p50Ms: Float
    p99Ms: Float
}
type ToolResult {
    tool: String!
    status: String!
    result: JSON
    error: String
    durationMs: Float!
}
input ToolInput {
    name: String!
    description: String!
    parameters: JSON!
    toolSet: String
    effect: Effect
    examples: [String!]
    run: JSON!
}
input ToolSetInput {
    name: String!
    description: String!
    active: Boolean = true
    source: JSON!
    context: String
    condition: String
}
type Subscription {
    executionEvents(executionId: ID!, afterSeq: Int = 0): ExecutionEvent!
    executionStatus(executionId: ID!): Execution!
    requestEvents(requestId: ID!): RequestEvent!
}
type Request {
    requestId: ID!
    query: String!
    createdAt: DateTime!
    plans: [Plan!]!
    executions: [Execution!]!
    transcript: [TranscriptEntry!]!
    timeline: [TimelineEntry!]!
    findings(first: Int): [Finding!]!
}
type TranscriptEntry { at: DateTime! kind: String! content: JSON! }
type TimelineEntry {
    at: DateTime!
    kind: String!
    executionId: ID
    stepId: String
    attempt: Int
    node: String
    message: String!
    detail: JSON
    durationMs: Float
}
type Plan {
    planId: ID!
    requestId: ID!
    version: Int!
    query: String!
    createdAt: DateTime!
    planner: String!
    tools: [ToolExecution!]!
    executionOrder: [String!]!
    layers: [[String!]!]!
    diagnostics: [Diagnostic!]!
    executions: [Execution!]!
    mermaid: String!
    dot: String!
}
type ToolExecution {
    stepId: String!
    toolName: String!
    parameters: JSON!
    dependsOn: [String!]!
    outputMapping: JSON
    when: String
    forEach: String
    effect: Effect!
    timeoutMs: Int
    retry: JSON
    onError: String!
    compensate: JSON
    requiresApproval: Boolean!
}
type PlanPayload { plan: Plan diagnostics: [Diagnostic!]! }
type Diagnostic { severity: Severity! code: String! path: String! message: String! help: String }
type Execution {
    executionId: ID!
    requestId: ID!
    planId: ID!
    state: ExecutionState!
    mode: ExecutionMode!
    createdAt: DateTime!
    startedAt: DateTime
    finishedAt: DateTime
    node: String
    total: Int!
    successful: Int!
    failed: Int!
    skipped: Int!
    cancelled: Int!
    dryRun: Boolean!
    steps: [StepStatus!]!
    step(stepId: String!): StepStatus
    findings(atSeq: Int, first: Int): [Finding!]!
    outputs: JSON!
    executionResults: ExecutionResults!
    events(afterSeq: Int = 0, first: Int = 1000): [ExecutionEvent!]!
}
type ExecutionResults { outputs: JSON! errors: [StepError!]! variables: JSON! }
type StepStatus {
    stepId: String!
    toolName: String!
    state: StepState!
    attempts: Int!
    startedAt: DateTime
    finishedAt: DateTime
    durationMs: Float
    resolvedParameters: JSON
    output: JSON
    error: StepError
    warnings: [String!]!
    items: [StepStatus!]!
    childExecutionId: ID
    settled: SettledOutcome
}
enum SettledOutcome { SUCCEEDED FAILED }
type StepError {
    stepId: String!
    toolName: String!
    code: String!
    message: String!
    attempt: Int!
    retryable: Boolean!
}
type ExecutionEvent {
    seq: Int!
    at: DateTime!
    executionId: ID!
    type: String!
    stepId: String
    attempt: Int
    data: JSON!
}
type RequestEvent {
    at: DateTime!
    requestId: ID!
    planId: ID
    executionId: ID
    type: String!
    data: JSON!
}
enum ExecutionState { PENDING IN_PROGRESS PAUSED WAITING COMPENSATING COMPLETED FAILED CANCELLED }
enum StepState { PENDING RUNNING RETRYING WAITING SUCCEEDED FAILED SKIPPED CANCELLED COMPENSATED }
enum BulkAction { CANCEL PAUSE RESUME RETRY }
enum ExecutionMode { SEQUENTIAL PARALLEL }
enum Effect { READ IDEMPOTENT ONCE }
enum Severity { ERROR WARNING INFO }
enum FindingKind { FAILURE WAIT SKIP WARNING TAKEOVER }
type Finding {
    code: String!
    severity: Severity!
    kind: FindingKind!
    stepId: String
    index: Int
    at: DateTime
    until: DateTime
    message: String!
    causeSeq: Int
    causeExecutionId: ID
    remedies: [Remedy!]!
}
type Remedy {
    label: String!
    command: String
    mutation: String
    variables: JSON
    isDangerous: Boolean!
}
type Tool {
    name: String!
    description: String!
    toolSet: String!
    source: String!
    active: Boolean!
    effect: Effect!
    inputSchema: JSON!
    outputSchema: JSON
    examples: [String!]!
}
type ToolSet {
    name: String!
    description: String!
    active: Boolean!
    source: String!
    tools: [Tool!]!
    status: String!
    error: String
}
input PlanInput {
    query: String
    requestId: ID
    tools: [ToolExecutionInput!]!
    executionOrder: [String!]
}
input ToolExecutionInput {
    id: String
    name: String
    toolName: String
    plan: String
    parameters: JSON
    dependsOn: JSON
    outputMapping: JSON
    when: String
    forEach: String
    retry: RetryInput
    timeoutMs: Int
    onError: String
    compensate: JSON
    requiresApproval: Boolean
    maxParallel: Int
    idleTimeoutMs: Int
    cacheTtlMs: Int
    strictTemplates: Boolean
}
input RetryInput {
    maxAttempts: Int
    backoffMs: Int
    maxBackoffMs: Int
    multiplier: Float
    jitter: Boolean
}
input PlanningOptions { planner: String toolSets: [String!] actions: [String!] }
input ExecutionOptions {
    mode: ExecutionMode = PARALLEL
    maxParallel: Int
    idempotencyKey: String
    deadlineMs: Int
    strictTemplates: Boolean
    input: JSON
    compensateOnFailure: Boolean
    dryRun: Boolean = false
    startAt: DateTime
    priority: Int = 0
}
input RequestFilter {
    search: String
    from: DateTime
    to: DateTime
    state: ExecutionState
    needsPerson: Boolean
}
input PlanFilter { requestId: ID search: String }
input ExecutionFilter {
    state: [ExecutionState!]
    requestId: ID
    planId: ID
    toolName: String
    from: DateTime
    to: DateTime
    needsPerson: Boolean
}
type PageInfo { hasNextPage: Boolean! hasPreviousPage: Boolean! endCursor: String startCursor: String }
type RequestConnection { nodes: [Request!]! edges: [RequestEdge!]! pageInfo: PageInfo! }
type PlanConnection { nodes: [Plan!]! edges: [PlanEdge!]! pageInfo: PageInfo! }
type ExecutionConnection { nodes: [Execution!]! edges: [ExecutionEdge!]! pageInfo: PageInfo! }
type RequestEdge { cursor: String! node: Request! }
type PlanEdge { cursor: String! node: Plan! }
type ExecutionEdge { cursor: String! node: Execution! }
";

#[test]
fn the_mutations_that_operators_cannot_call_are_listed() {
    let sdl = schema_text();
    let (_, mutation) = sdl.split_once("\ntype Mutation {").unwrap();
    let (mutation, _) = mutation.split_once("\n}").unwrap();
    let fields = mutation.lines().filter_map(|line| line.strip_prefix("  "));
    // Leaves out lines that are not fields, such as lines of descriptions.
    let is_name = |name: &&str| name.chars().all(|name| name.is_ascii_alphanumeric());
    let names: Vec<&str> =
        fields.filter_map(|line| Some(line.split_once(['(', ':'])?.0)).filter(is_name).collect();
    assert!(names.len() > 20, "{names:?}");
    let admins: Vec<&str> = names
        .into_iter()
        .filter(|name| required_role("Mutation", name) != Role::Operator)
        .collect();
    // This list makes the test fail for a new mutation, so that its author decides which role the
    // mutation needs.
    expect!["savePlan removeSavedPlan bulkControl registerTool removeTool addToolSet removeToolSet activateToolSets deactivateToolSets setContext addAction connectTool updateToolkit removeAction disconnectTool setScore prune storePlan"]
    .assert_eq(&admins.join(" "));
}

#[test]
fn only_a_mutation_never_shows_what_takes_the_place_of_a_locked_value() {
    let two = "query A { a } mutation B { b }";
    for (text, name, expected) in [
        ("{ a }", None, false),
        ("subscription { a }", None, false),
        ("mutation { b }", None, true),
        ("mutation B { b }", Some("B"), true),
        (two, Some("A"), false),
        (two, Some("B"), true),
        // The request fails, because it does not name the operation that it means.
        (two, None, true),
        ("{ a", None, false),
    ] {
        let mut request = async_graphql::Request::new(text);
        request.operation_name = name.map(str::to_owned);
        assert_eq!(is_mutation(&mut request), expected, "{text} {name:?}");
    }
}
