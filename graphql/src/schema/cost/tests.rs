use std::collections::BTreeSet;

use async_graphql::parser::parse_query;
use serde_json::json;

use super::{super::schema_text, *};

/// Fields that themselves cost one, by type. They read values that their parent object has already
/// loaded, or little more. All other fields are in [`EXPENSIVE_FIELDS`].
const CHEAP_FIELDS: &[(&str, &str)] = &[
    ("Action", "description name"),
    ("Actor", "client kind name"),
    ("AuditEntry", "action actionEnum actor at detail executionId id name planId requestId stepId"),
    ("AuditEntryConnection", "edges nodes pageInfo"),
    ("AuditEntryEdge", "cursor node"),
    ("Blob", "at bytes data id mimeType sha256"),
    ("Caller", "name role"),
    ("CompensatingCall", "parameters toolName"),
    ("Diagnostic", "code help message path severity"),
    ("ExecutionCount", "count firstAt keys lastAt p50Ms p95Ms sampleExecutionId"),
    (
        "Execution",
        "cancelled compensateOnFailure createdAt createdBy deadline dryRun executionId executionResults \
         failed finishedAt forkedFrom id input labels mode node outputs parentExecutionId parentIndex parentStepId \
         plan planId priority request requestId retryOf seq skipped startAt startedAt state step \
         steps successful total",
    ),
    ("ExecutionConnection", "edges nodes pageInfo"),
    ("ExecutionEdge", "cursor node"),
    ("ExecutionEvent", "actor at attempt data detail executionId seq stepId type typeEnum"),
    ("ExecutionResults", "errors outputs variables"),
    (
        "Finding",
        "at causeExecutionId causeSeq code index kind message remedies severity stepId until",
    ),
    ("ForkPreview", "keptSteps onceCalls"),
    ("ItemTally", "cancelled failed pending running skipped successful total waiting"),
    ("Layout", "edges height nodes width"),
    ("LayoutEdge", "from points to"),
    ("LayoutNode", "height name width x y"),
    ("OnceCall", "calls outcomeUnknown remedies repeated stepId toolName"),
    ("PageInfo", "endCursor hasNextPage hasPreviousPage startCursor"),
    (
        "Plan",
        "createdAt diagnostics executionOrder executions id layers planId planner query request \
         requestId tools version",
    ),
    ("PlanConnection", "edges nodes pageInfo"),
    ("PlanEdge", "cursor node"),
    ("PlanPayload", "diagnostics plan"),
    ("PlannedCompensation", "effect parameters retryPolicy timeoutMs toolName"),
    ("PlanningError", "code codeEnum message"),
    ("Progress", "message progress total"),
    ("Pruned", "executions more plans requests"),
    (
        "Query",
        "caller executions plans requests savedPlan savedPlanConnection savedPlans tool toolSets",
    ),
    ("Remedy", "command isDangerous label mutation variables"),
    ("RepeatedCall", "calls outcomeUnknown remedies stepId toolName"),
    ("Replanning", "givenUp reason state"),
    ("Request", "createdAt executions id labels query requestId"),
    ("RequestConnection", "edges nodes pageInfo"),
    ("RequestEdge", "cursor node"),
    ("RequestEvent", "at attempt data executionId planId requestId seq stepId type typeEnum"),
    ("RetryPolicy", "backoffMs jitter maxAttempts maxBackoffMs multiplier"),
    ("SavedPlan", "inputs name plan planId savedAt"),
    ("SavedPlanConnection", "edges nodes pageInfo"),
    ("SavedPlanEdge", "cursor node"),
    ("StepError", "attempt code index message retryable stepId toolName"),
    (
        "StepStatus",
        "attempts childExecutionId compensation durationMs error finishedAt id index itemTally \
         missingCompensation output progress resolvedParameters reused settled settledComment \
         settledOutput skipReason skipReasonEnum startedAt state stepId toolName until waitedMs \
         waitsFor waitsForEnum warnings workMs",
    ),
    (
        "TimelineEntry",
        "actor at attempt detail durationMs executionId kind kindEnum message node stepId \
         waitedMs",
    ),
    (
        "Tool",
        "active callable description effect examples id inputSchema name outputSchema qualifiedName \
         shadowedBy source toolSet usage",
    ),
    ("ToolCall", "args format formatEnum raw tool"),
    ("ToolCollision", "a b similarity"),
    (
        "ToolExecution",
        "cacheTtlMs compensate compensation dependsOn effect forEach idleTimeoutMs maxParallel onError \
         onErrorEnum outputMapping parameters plan requiresApproval retry retryPolicy stepId strictTemplates timeoutMs \
         toolName when",
    ),
    ("ToolFollower", "score toolName"),
    ("ToolMatch", "hit learned leastSimilar leastSimilarExample score tool"),
    ("ToolResult", "at callId durationMs error parameters result status statusEnum tool warnings"),
    ("ToolResultConnection", "edges nodes pageInfo"),
    ("ToolResultEdge", "cursor node"),
    ("ToolSet", "active description error id name source status statusEnum tools"),
    ("ToolSetChange", "changed notFound refused toolSets"),
    ("ToolUsage", "calls failures lastCalledAt p50Ms p99Ms qualifiedName toolName"),
    ("Toolkit", "actions edges tools"),
    ("ToolkitChange", "toolkit warnings"),
    ("ToolkitEdge", "from kind kindEnum learned score to"),
    ("ToolsAndActions", "actions tools"),
    ("TranscriptEntry", "at content kind kindEnum"),
    ("UndoCall", "executionId index stepId toolName"),
    ("Wait", "executionId index kind kindEnum message name stepId until"),
    ("Worker", "executions leaseUntil node workerId"),
];

fn cost_of_query(query: &str) -> Cost {
    let document = parse_query(query).unwrap();
    let variables = Variables::from_json(json!({ "few": 2, "none": null }));
    Costs::new(&schema_text()).compute_cost(&document, None, &variables)
}

#[test]
fn the_cost_of_a_query_counts_fields_and_list_sizes() {
    for (query, expected) in [
        ("{ __typename }", 1),
        ("{ a: __typename b: __typename }", 2),
        ("{ executions { nodes { state } } }", 1 + 20 * 2),
        ("{ executions(first: 3) { nodes { __typename state } } }", 1 + 3 * 3),
        ("query($few: Int) { executions(first: $few) { nodes { state } } }", 1 + 2 * 2),
        ("query($n: Int = 7) { executions(first: $n) { nodes { state } } }", 1 + 7 * 2),
        ("query($n: Int) { executions(first: $n) { nodes { state } } }", 1 + 20 * 2),
        ("{ executions(first: -1) { nodes { state } } }", 1 + 2),
        ("{ executions(last: 3) { nodes { state } } }", 1 + 3 * 2),
        ("{ executions(first: null, last: 3) { nodes { state } } }", 1 + 3 * 2),
        ("{ executions(first: 9, last: 3) { nodes { state } } }", 1 + 9 * 2),
        ("query($none: Int) { executions(last: $none) { nodes { state } } }", 1 + 20 * 2),
        ("{ execution(executionId: 1) { events(first: 10000) { seq at } } }", 5 + 10 + 400),
        ("{ plan(planId: 1) { layout { width } } }", 5 + 2_001),
        ("{ execution(executionId: 1) { retries { state } } }", 5 + 1_000 + 5),
        ("{ nonsense { a b } }", 3),
        ("{ ...a ...a } fragment a on Query { __typename }", 2),
        ("{ ...a } fragment a on Query { ...a __typename }", 1),
        ("{ ... on Query { __typename } ... { __typename } }", 2),
        ("query A { __typename } query B { a: __typename b: __typename }", 2),
        ("{ __type(name: \"A\") { fields { args { name } } } }", 20 + 1 + 4 * (1 + 2)),
    ] {
        assert_eq!(cost_of_query(query).total, expected, "{query}");
    }
}

#[test]
fn nested_fragments_are_counted_in_linear_time() {
    let fragment = |n: usize| format!("fragment f{n} on Query {{ ...f{} ...f{} }} ", n + 1, n + 1);
    let fragments: String = (0..60).map(fragment).collect();
    let query = format!("{{ ...f0 }} {fragments} fragment f60 on Query {{ __typename }}");
    assert_eq!(cost_of_query(&query).total, 1 << 60);
}

#[test]
fn the_queries_of_the_page_are_within_the_limit() {
    let document = parse_query(include_str!("../../../../web/src/api/operations.graphql")).unwrap();
    let costs = Costs::new(&schema_text());
    let variables = Variables::from_json(json!({ "first": 200 }));
    let names = document.operations.iter().filter_map(|(name, _)| Some(name?.as_str()));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let cost = costs.compute_cost(&document, Some(name), &variables);
        let maximum = super::super::Limits::default().complexity;
        assert!(cost.total < maximum, "{name} costs {cost:?}");
    }
}

#[test]
fn every_expensive_field_exists_in_the_schema() {
    let costs = Costs::new(&schema_text());
    for ExpensiveField { field, .. } in EXPENSIVE_FIELDS {
        assert!(costs.fields.contains_key(*field), "`{field}` is not in the schema");
    }
}

#[test]
fn every_field_of_the_schema_has_a_cost() {
    let costs = Costs::new(&schema_text());
    let all = costs.fields.keys().map(String::as_str).filter(|field| !field.contains("__"));
    let all: BTreeSet<&str> = all.collect();
    let expensive: BTreeSet<&str> =
        EXPENSIVE_FIELDS.iter().map(|expensive| expensive.field).collect();
    // The details of events are parts of events that are already loaded.
    let is_detail = |field: &str| {
        let type_name = field.split('.').next().unwrap_or_default();
        type_name != "ExecutionEvent"
            && type_name != "RequestEvent"
            && (type_name.ends_with("Event") || type_name.starts_with("Event"))
    };
    let cheap: BTreeSet<String> = CHEAP_FIELDS
        .iter()
        .flat_map(|(type_name, fields)| {
            fields.split(' ').map(move |field| format!("{type_name}.{field}"))
        })
        .collect();
    for field in &all {
        assert!(
            expensive.contains(field) != (cheap.contains(*field) || is_detail(field)),
            "`{field}` needs one cost: in `EXPENSIVE_FIELDS` if it reads the store, calls or computes a lot, \
             or else in `CHEAP_FIELDS`"
        );
    }
    for field in &cheap {
        assert!(all.contains(field.as_str()), "`{field}` is not in the schema");
    }
}
