// Written by `npm run types` from the server's schema and `operations.graphql`. Do not edit.

import type { Num } from "./json";

/** Any JSON value. A number that JavaScript would change is a `Num`. */
export type Json = null | boolean | number | Num | string | Json[] | { [key: string]: Json };
/** The text of a GraphQL operation, with the types of its result and its variables. */
export type Operation<Result, Variables> = string & { readonly _?: (it: Variables) => Result };

/** The response fields that hold any JSON. Their numbers must be read without a loss. */
export const EXACT: ReadonlySet<string> = new Set(["compensate","content","data","exportPlan","input","inputSchema","inputs","labels","output","outputMapping","outputSchema","outputs","parameters","resolvedParameters","result","retry","settledOutput","variables"]);

/** The names of the fields of the input types for a plan. */
export const FIELDS = {
  "PlanInput": [
    "query",
    "requestId",
    "tools",
    "executionOrder"
  ],
  "ToolExecutionInput": [
    "id",
    "name",
    "toolName",
    "plan",
    "inlinePlan",
    "parameters",
    "dependsOn",
    "outputMapping",
    "when",
    "forEach",
    "maxParallel",
    "retry",
    "timeoutMs",
    "idleTimeoutMs",
    "cacheTtlMs",
    "strictTemplates",
    "onError",
    "compensate",
    "requiresApproval"
  ],
  "RetryInput": [
    "maxAttempts",
    "backoffMs",
    "maxBackoffMs",
    "multiplier",
    "jitter"
  ]
} as const;

export type ActorKind = "TOKEN" | "USER" | "LOCAL" | "FABER";
export type BulkAction = "CANCEL" | "PAUSE" | "RESUME" | "RETRY";
export type CollisionSimilarity = "DOT" | "COSINE";
export type Effect = "READ" | "IDEMPOTENT" | "ONCE";
export interface ExecutionFilter {
  state?: ExecutionState[] | null;
  requestId?: string | null;
  planId?: string | null;
  toolName?: string | null;
  parts?: boolean | null;
  from?: string | null;
  to?: string | null;
  needsPerson?: boolean | null;
  labels?: Json | null;
  errorCode?: string | null;
  failedTool?: string | null;
  errorText?: string | null;
  executionIds?: string[] | null;
}
export type ExecutionMode = "SEQUENTIAL" | "PARALLEL";
export interface ExecutionOptions {
  mode?: ExecutionMode | null;
  maxParallel?: number | null;
  idempotencyKey?: string | null;
  deadlineMs?: number | null;
  strictTemplates?: boolean | null;
  input?: Json | null;
  compensateOnFailure?: boolean | null;
  dryRun?: boolean | null;
  startAt?: string | null;
  priority?: number | null;
  replans?: number | null;
  labels?: Json | null;
}
export type ExecutionState = "PENDING" | "IN_PROGRESS" | "PAUSED" | "WAITING" | "COMPENSATING" | "COMPLETED" | "FAILED" | "CANCELLED";
export type FindingKind = "FAILURE" | "WAIT" | "SKIP" | "WARNING" | "TAKEOVER";
export type LayoutDirection = "DOWN" | "RIGHT";
export interface NodeSizeInput {
  name: string;
  width: number;
  height: number;
}
export type PlanCache = "OFF" | "EXACT";
export type PlanGuard = "STRICT" | "APPROVE" | "OFF";
export interface PlanInput {
  query?: string | null;
  requestId?: string | null;
  tools: ToolExecutionInput[];
  executionOrder?: string[] | null;
}
export interface PlanningOptions {
  planner?: string | null;
  toolSets?: string[] | null;
  actions?: string[] | null;
  maxTools?: number | null;
  cache?: PlanCache | null;
  guard?: PlanGuard | null;
  labels?: Json | null;
}
export type ReplanningState = "PENDING" | "BEGUN" | "GIVEN_UP";
export interface RequestFilter {
  search?: string | null;
  from?: string | null;
  to?: string | null;
  state?: ExecutionState | null;
  needsPerson?: boolean | null;
}
export interface RetryInput {
  maxAttempts?: number | null;
  backoffMs?: number | null;
  maxBackoffMs?: number | null;
  multiplier?: number | null;
  jitter?: boolean | null;
}
export type RetryMode = "FAILED" | "FROM_STEP" | "ALL";
export type Role = "VIEWER" | "OPERATOR" | "ADMIN";
export type SelectionCriterion = "CENTROID" | "DESCRIPTION" | "LEXICAL" | "HYBRID";
export type SettledOutcome = "SUCCEEDED" | "FAILED";
export type Severity = "ERROR" | "WARNING" | "INFO";
export interface StepChangeInput {
  stepId: string;
  parameters?: Json | null;
  output?: Json | null;
}
export type StepState = "PENDING" | "RUNNING" | "RETRYING" | "WAITING" | "SUCCEEDED" | "FAILED" | "SKIPPED" | "CANCELLED" | "COMPENSATED";
export interface ToolExecutionInput {
  id?: string | null;
  name?: string | null;
  toolName?: string | null;
  plan?: string | null;
  inlinePlan?: PlanInput | null;
  parameters?: Json | null;
  dependsOn?: Json | null;
  outputMapping?: Json | null;
  when?: string | null;
  forEach?: string | null;
  maxParallel?: number | null;
  retry?: RetryInput | null;
  timeoutMs?: number | null;
  idleTimeoutMs?: number | null;
  cacheTtlMs?: number | null;
  strictTemplates?: boolean | null;
  onError?: string | null;
  compensate?: Json | null;
  requiresApproval?: boolean | null;
}

export type RunRow = { executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null };
export type Reason = { severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string };
export type RunPart = { parentStepId: string | null; parentIndex: number | null };
export type RequestRow = { requestId: string; query: string; createdAt: string; planningError: { code: string; message: string } | null; plans: { createdAt: string }[]; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[]; executions: ({ executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] };
export type RequestsResult = { requests: { pageInfo: { hasNextPage: boolean }; edges: ({ cursor: string; node: { requestId: string; query: string; createdAt: string; planningError: { code: string; message: string } | null; plans: { createdAt: string }[]; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[]; executions: ({ executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] } })[] } };
export type RequestsVariables = { filter?: RequestFilter | null; first?: number | null; after?: string | null };
export const Requests: Operation<RequestsResult, RequestsVariables> = "query Requests($filter:RequestFilter$first:Int$after:String){requests(filter:$filter first:$first after:$after){pageInfo{hasNextPage}edges{cursor node{...RequestRow}}}}fragment RequestRow on Request{requestId query createdAt planningError{code message}plans{createdAt}findings(first:1){...Reason}executions(last:1 parts:false){...RunRow findings(first:1){...Reason}}}fragment Reason on Finding{severity kind stepId index at message}fragment RunRow on Execution{executionId requestId planId state mode createdAt startedAt finishedAt total successful failed skipped cancelled dryRun startAt}";
export type ExecutionsResult = { executions: { pageInfo: { hasNextPage: boolean }; edges: ({ cursor: string; node: { executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null; parentStepId: string | null; parentIndex: number | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[]; request: { query: string } | null } })[] } };
export type ExecutionsVariables = { filter?: ExecutionFilter | null; first?: number | null; after?: string | null };
export const Executions: Operation<ExecutionsResult, ExecutionsVariables> = "query Executions($filter:ExecutionFilter$first:Int$after:String){executions(filter:$filter first:$first after:$after){pageInfo{hasNextPage}edges{cursor node{...RunRow ...RunPart findings(first:1){...Reason}request{query}}}}}fragment RunRow on Execution{executionId requestId planId state mode createdAt startedAt finishedAt total successful failed skipped cancelled dryRun startAt}fragment RunPart on Execution{parentStepId parentIndex}fragment Reason on Finding{severity kind stepId index at message}";
export type OverviewResult = { needy: { totalCount: number }; failed: { totalCount: number }; running: { totalCount: number }; resting: { totalCount: number }; pending: { totalCount: number; nodes: ({ startAt: string | null })[] }; requests: { totalCount: number } };
export type OverviewVariables = { failed: ExecutionFilter };
export const Overview: Operation<OverviewResult, OverviewVariables> = "query Overview($failed:ExecutionFilter!){needy:executions(filter:{needsPerson:true}first:1){totalCount}failed:executions(filter:$failed first:1){totalCount}running:executions(filter:{state:[IN_PROGRESS COMPENSATING]parts:false needsPerson:false}first:1){totalCount}resting:executions(filter:{state:[WAITING]parts:false needsPerson:false}first:1){totalCount}pending:executions(filter:{state:[PENDING]parts:false}first:200){totalCount nodes{startAt}}requests(first:1){totalCount}}";
export type OverviewCountsResult = { outcomes: { keys: string[]; count: number }[]; times: ({ keys: string[]; p95Ms: number | null })[]; completed: ({ keys: string[]; p50Ms: number | null; p95Ms: number | null })[]; failures: { keys: string[]; count: number; firstAt: string; lastAt: string; sampleExecutionId: string }[]; codes: { keys: string[]; count: number; firstAt: string; lastAt: string; sampleExecutionId: string }[] };
export type OverviewCountsVariables = { filter: ExecutionFilter; failed: ExecutionFilter; bucketMs: number };
export const OverviewCounts: Operation<OverviewCountsResult, OverviewCountsVariables> = "query OverviewCounts($filter:ExecutionFilter!$failed:ExecutionFilter!$bucketMs:Int!){outcomes:executionCounts(filter:$filter groupBy:[BUCKET STATE]bucketMs:$bucketMs first:1000){keys count}times:executionCounts(filter:$filter groupBy:[BUCKET]bucketMs:$bucketMs first:1000){keys p95Ms}completed:executionCounts(filter:$filter groupBy:[STATE]){keys p50Ms p95Ms}failures:executionCounts(filter:$failed groupBy:[TOOL ERROR]first:50){keys count firstAt lastAt sampleExecutionId}codes:executionCounts(filter:$failed groupBy:[ERROR]first:50){keys count firstAt lastAt sampleExecutionId}}";
export type SampleCausesResult = { executions: { nodes: ({ executionId: string; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] } };
export type SampleCausesVariables = { ids: string[] };
export const SampleCauses: Operation<SampleCausesResult, SampleCausesVariables> = "query SampleCauses($ids:[ID!]!){executions(filter:{executionIds:$ids}first:50){nodes{executionId findings(first:1){...Reason}}}}fragment Reason on Finding{severity kind stepId index at message}";
export type ApprovalsResult = { executions: { totalCount: number; nodes: ({ executionId: string; state: ExecutionState; createdAt: string; parentExecutionId: string | null; request: { query: string } | null; findings: ({ code: string; severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; until: string | null; message: string; causeSeq: number | null; causeExecutionId: string | null; remedies: ({ label: string; command: string | null; mutation: string | null; variables: Json | null; isDangerous: boolean })[] })[] })[] } };
export type ApprovalsVariables = { first: number };
export const Approvals: Operation<ApprovalsResult, ApprovalsVariables> = "query Approvals($first:Int!){executions(filter:{needsPerson:true}first:$first){totalCount nodes{executionId state createdAt parentExecutionId request{query}findings(first:10){...Finding}}}}fragment Finding on Finding{code severity kind stepId index at until message causeSeq causeExecutionId remedies{label command mutation variables isDangerous}}";
export type AskedCallResult = { execution: { step: { stepId: string; toolName: string; resolvedParameters: Json | null; items: ({ index: number | null; resolvedParameters: Json | null })[] } | null } | null };
export type AskedCallVariables = { id: string; stepId: string; after?: number | null };
export const AskedCall: Operation<AskedCallResult, AskedCallVariables> = "query AskedCall($id:ID!$stepId:String!$after:Int){execution(executionId:$id){step(stepId:$stepId){stepId toolName resolvedParameters items(first:1 afterIndex:$after){index resolvedParameters}}}}";
export type WhoAmIResult = { caller: { name: string | null; role: Role } };
export type WhoAmIVariables = {  };
export const WhoAmI: Operation<WhoAmIResult, WhoAmIVariables> = "query WhoAmI{caller{name role}}";
export type BlobDataResult = { blob: { base64: string } | null };
export type BlobDataVariables = { id: string };
export const BlobData: Operation<BlobDataResult, BlobDataVariables> = "query BlobData($id:ID!){blob(id:$id){base64:data}}";
export type NeedyCountResult = { executions: { totalCount: number } };
export type NeedyCountVariables = {  };
export const NeedyCount: Operation<NeedyCountResult, NeedyCountVariables> = "query NeedyCount{executions(filter:{needsPerson:true}first:1){totalCount}}";
export type BulkEffectsResult = { executions: { nodes: { executionId: string; repeatedCalls: { stepId: string; toolName: string; calls: number; outcomeUnknown: boolean }[] }[] } };
export type BulkEffectsVariables = { filter: ExecutionFilter };
export const BulkEffects: Operation<BulkEffectsResult, BulkEffectsVariables> = "query BulkEffects($filter:ExecutionFilter!){executions(filter:$filter first:100){nodes{executionId repeatedCalls(mode:FAILED){stepId toolName calls outcomeUnknown}}}}";
export type RunsToRetryResult = { executions: { pageInfo: { hasNextPage: boolean; endCursor: string | null }; nodes: ({ executionId: string; requestId: string; createdAt: string; retryOf: string | null })[] } };
export type RunsToRetryVariables = { filter: ExecutionFilter; after?: string | null };
export const RunsToRetry: Operation<RunsToRetryResult, RunsToRetryVariables> = "query RunsToRetry($filter:ExecutionFilter!$after:String){executions(filter:$filter first:200 after:$after){pageInfo{hasNextPage endCursor}nodes{executionId requestId createdAt retryOf}}}";
export type BulkCountResult = { executions: { totalCount: number } };
export type BulkCountVariables = { filter: ExecutionFilter };
export const BulkCount: Operation<BulkCountResult, BulkCountVariables> = "query BulkCount($filter:ExecutionFilter!){executions(filter:$filter first:1){totalCount}}";
export type BulkControlResult = { bulkControl: number };
export type BulkControlVariables = { filter: ExecutionFilter; action: BulkAction; perSecond?: number | null };
export const BulkControl: Operation<BulkControlResult, BulkControlVariables> = "mutation BulkControl($filter:ExecutionFilter!$action:BulkAction!$perSecond:Float){bulkControl(filter:$filter action:$action perSecond:$perSecond)}";
export type RunQueryResult = { run: { executionId: string } };
export type RunQueryVariables = { query: string };
export const RunQuery: Operation<RunQueryResult, RunQueryVariables> = "mutation RunQuery($query:String!){run(query:$query){executionId}}";
export type ListTotalsResult = { executions: { totalCount: number }; all: { totalCount: number } };
export type ListTotalsVariables = { filter: ExecutionFilter; all: ExecutionFilter };
export const ListTotals: Operation<ListTotalsResult, ListTotalsVariables> = "query ListTotals($filter:ExecutionFilter!$all:ExecutionFilter!){executions(filter:$filter first:1){totalCount}all:executions(filter:$all first:1){totalCount}}";
export type RequestTotalsResult = { requests: { totalCount: number }; all: { totalCount: number } };
export type RequestTotalsVariables = { filter: RequestFilter };
export const RequestTotals: Operation<RequestTotalsResult, RequestTotalsVariables> = "query RequestTotals($filter:RequestFilter!){requests(filter:$filter first:1){totalCount}all:requests(first:1){totalCount}}";
export type FoundRun = { executionId: string; state: ExecutionState; createdAt: string; request: { query: string } | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] };
export type FindResult = { requests: { totalCount: number; nodes: { requestId: string; query: string; createdAt: string; plans: { createdAt: string }[]; executions: { executionId: string }[] }[] }; errors: { totalCount: number; nodes: ({ executionId: string; state: ExecutionState; createdAt: string; request: { query: string } | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] }; users: { totalCount: number; nodes: ({ executionId: string; state: ExecutionState; createdAt: string; request: { query: string } | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] }; labelled: { totalCount: number; nodes: ({ executionId: string; state: ExecutionState; createdAt: string; request: { query: string } | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[] })[] }; named: { qualifiedName: string; description: string }[]; savedPlans: ({ name: string; planId: string; inputs: Json | null })[] };
export type FindVariables = { words: string; byError: ExecutionFilter; byTool: ExecutionFilter; byLabel: ExecutionFilter };
export const Find: Operation<FindResult, FindVariables> = "query Find($words:String!$byError:ExecutionFilter!$byTool:ExecutionFilter!$byLabel:ExecutionFilter!){requests(filter:{search:$words}first:5){totalCount nodes{requestId query createdAt plans{createdAt}executions(last:1 parts:false){executionId}}}errors:executions(filter:$byError first:5){totalCount nodes{...FoundRun}}users:executions(filter:$byTool first:5){totalCount nodes{...FoundRun}}labelled:executions(filter:$byLabel first:5){totalCount nodes{...FoundRun}}named:tools(search:$words){qualifiedName description}savedPlans(first:200){name planId inputs}}fragment FoundRun on Execution{executionId state createdAt request{query}findings(first:1){...Reason}}fragment Reason on Finding{severity kind stepId index at message}";
export type FilterValuesResult = { tools: { qualifiedName: string }[]; codes: { keys: string[] }[] };
export type FilterValuesVariables = {  };
export const FilterValues: Operation<FilterValuesResult, FilterValuesVariables> = "query FilterValues{tools{qualifiedName}codes:executionCounts(groupBy:[ERROR]first:100){keys}}";
export type NeedPersonResult = { executions: { pageInfo: { hasNextPage: boolean }; nodes: { executionId: string; requestId: string }[] } };
export type NeedPersonVariables = { parts?: boolean | null };
export const NeedPerson: Operation<NeedPersonResult, NeedPersonVariables> = "query NeedPerson($parts:Boolean){executions(filter:{needsPerson:true parts:$parts}first:200){pageInfo{hasNextPage}nodes{executionId requestId}}}";
export type RequestRunsResult = { executions: { pageInfo: { hasNextPage: boolean }; edges: ({ cursor: string; node: { executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null; parentStepId: string | null; parentIndex: number | null; findings: ({ severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; message: string })[]; retryOf: string | null } })[] } };
export type RequestRunsVariables = { filter?: ExecutionFilter | null; first?: number | null; after?: string | null };
export const RequestRuns: Operation<RequestRunsResult, RequestRunsVariables> = "query RequestRuns($filter:ExecutionFilter$first:Int$after:String){executions(filter:$filter first:$first after:$after){pageInfo{hasNextPage}edges{cursor node{...RunRow ...RunPart findings(first:1){...Reason}retryOf}}}}fragment RunRow on Execution{executionId requestId planId state mode createdAt startedAt finishedAt total successful failed skipped cancelled dryRun startAt}fragment RunPart on Execution{parentStepId parentIndex}fragment Reason on Finding{severity kind stepId index at message}";
export type Problem = { severity: Severity; code: string; path: string; message: string; help: string | null };
export type Step = { stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean };
export type Drawing = { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] };
export type PlanWritten = { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[] };
export type PlanSummary = { planId: string; requestId: string; version: number; query: string; planner: string };
export type PlanDrawn = { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } };
export type RequestPageResult = { request: { requestId: string; query: string; createdAt: string; planningError: { code: string; message: string } | null; findings: ({ code: string; severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; until: string | null; message: string; causeSeq: number | null; causeExecutionId: string | null; remedies: ({ label: string; command: string | null; mutation: string | null; variables: Json | null; isDangerous: boolean })[] })[]; transcript: { at: string; kind: string; content: Json }[]; plans: { planId: string; version: number; query: string; createdAt: string; planner: string; executionOrder: string[] }[] } | null };
export type RequestPageVariables = { id: string };
export const RequestPage: Operation<RequestPageResult, RequestPageVariables> = "query RequestPage($id:ID!){request(requestId:$id){requestId query createdAt planningError{code message}findings(first:20){...Finding}transcript{at kind content}plans{planId version query createdAt planner executionOrder}}}fragment Finding on Finding{code severity kind stepId index at until message causeSeq causeExecutionId remedies{label command mutation variables isDangerous}}";
export type PlanLayoutResult = { plan: { layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } | null };
export type PlanLayoutVariables = { id: string; direction?: LayoutDirection | null; sizes?: NodeSizeInput[] | null };
export const PlanLayout: Operation<PlanLayoutResult, PlanLayoutVariables> = "query PlanLayout($id:ID!$direction:LayoutDirection$sizes:[NodeSizeInput!]){plan(planId:$id){layout(direction:$direction nodeWidth:196 nodeHeight:50 sizes:$sizes){...Drawing}}}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type PlanStepsResult = { plan: { planId: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[] } | null };
export type PlanStepsVariables = { id: string };
export const PlanSteps: Operation<PlanStepsResult, PlanStepsVariables> = "query PlanSteps($id:ID!){plan(planId:$id){planId tools{...Step}}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}";
export type PlanOneResult = { plan: { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } | null; exportPlan: Json | null };
export type PlanOneVariables = { id: string; direction?: LayoutDirection | null };
export const PlanOne: Operation<PlanOneResult, PlanOneVariables> = "query PlanOne($id:ID!$direction:LayoutDirection){plan(planId:$id){...PlanDrawn}exportPlan(planId:$id)}fragment PlanDrawn on Plan{...PlanWritten layout(direction:$direction nodeWidth:196 nodeHeight:50){...Drawing}}fragment PlanWritten on Plan{planId requestId version query createdAt planner tools{...Step}diagnostics{...Problem}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}fragment Problem on Diagnostic{severity code path message help}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type PlanExportedResult = { exportPlan: Json | null };
export type PlanExportedVariables = { id: string };
export const PlanExported: Operation<PlanExportedResult, PlanExportedVariables> = "query PlanExported($id:ID!){exportPlan(planId:$id)}";
export type SavedPlanListResult = { savedPlans: ({ name: string; planId: string; inputs: Json | null; savedAt: string; plan: { query: string; version: number; executionOrder: string[] } | null })[] };
export type SavedPlanListVariables = { first: number; after?: string | null };
export const SavedPlanList: Operation<SavedPlanListResult, SavedPlanListVariables> = "query SavedPlanList($first:Int!$after:String){savedPlans(first:$first after:$after){name planId inputs savedAt plan{query version executionOrder}}}";
export type SavedPlanOneResult = { savedPlan: { name: string; planId: string; inputs: Json | null; savedAt: string; plan: { requestId: string; query: string; version: number; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[] } | null } | null };
export type SavedPlanOneVariables = { name: string };
export const SavedPlanOne: Operation<SavedPlanOneResult, SavedPlanOneVariables> = "query SavedPlanOne($name:String!){savedPlan(name:$name){name planId inputs savedAt plan{requestId query version tools{...Step}}}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}";
export type SavePlanResult = { savePlan: boolean };
export type SavePlanVariables = { name: string; planId: string; inputs?: Json | null };
export const SavePlan: Operation<SavePlanResult, SavePlanVariables> = "mutation SavePlan($name:String!$planId:ID!$inputs:JSON){savePlan(name:$name planId:$planId inputs:$inputs)}";
export type RemoveSavedPlanResult = { removeSavedPlan: boolean };
export type RemoveSavedPlanVariables = { name: string };
export const RemoveSavedPlan: Operation<RemoveSavedPlanResult, RemoveSavedPlanVariables> = "mutation RemoveSavedPlan($name:String!){removeSavedPlan(name:$name)}";
export type ScheduledResult = { executions: { totalCount: number; nodes: ({ executionId: string; startAt: string | null; createdAt: string; request: { query: string } | null; createdBy: { kind: ActorKind; name: string | null; client: string | null } | null })[] } };
export type ScheduledVariables = {  };
export const Scheduled: Operation<ScheduledResult, ScheduledVariables> = "query Scheduled{executions(filter:{state:[PENDING]parts:false}first:200){totalCount nodes{executionId startAt createdAt request{query}createdBy{...WhoActed}}}}fragment WhoActed on Actor{kind name client}";
export type OpenRunsResult = { executions: { totalCount: number; nodes: ({ executionId: string; state: ExecutionState; node: string | null; startedAt: string | null; request: { query: string } | null; waitsFor: ({ kind: string; stepId: string | null; name: string | null; message: string })[] })[] } };
export type OpenRunsVariables = {  };
export const OpenRuns: Operation<OpenRunsResult, OpenRunsVariables> = "query OpenRuns{executions(filter:{state:[IN_PROGRESS WAITING COMPENSATING]}first:100){totalCount nodes{executionId state node startedAt request{query}waitsFor{kind stepId name message}}}}";
export type WorkersResult = { workers: { workerId: string; node: string; leaseUntil: string; executions: number }[] };
export type WorkersVariables = {  };
export const Workers: Operation<WorkersResult, WorkersVariables> = "query Workers{workers{workerId node leaseUntil executions}}";
export type SetStatesResult = { toolSets: ({ name: string; source: string; active: boolean; status: string; error: string | null })[] };
export type SetStatesVariables = {  };
export const SetStates: Operation<SetStatesResult, SetStatesVariables> = "query SetStates{toolSets{name source active status error}}";
export type ToolUsageAllResult = { toolUsage: ({ toolName: string; qualifiedName: string; calls: number; failures: number; lastCalledAt: string | null; p50Ms: number | null; p99Ms: number | null })[] };
export type ToolUsageAllVariables = {  };
export const ToolUsageAll: Operation<ToolUsageAllResult, ToolUsageAllVariables> = "query ToolUsageAll{toolUsage{toolName qualifiedName calls failures lastCalledAt p50Ms p99Ms}}";
export type SavedPlansResult = { savedPlans: ({ name: string; planId: string; inputs: Json | null })[] };
export type SavedPlansVariables = {  };
export const SavedPlans: Operation<SavedPlansResult, SavedPlansVariables> = "query SavedPlans{savedPlans(first:200){name planId inputs}}";
export type ExecutionPageResult = { execution: { executionId: string; requestId: string; planId: string; state: ExecutionState; mode: ExecutionMode; createdAt: string; startedAt: string | null; finishedAt: string | null; total: number; successful: number; failed: number; skipped: number; cancelled: number; dryRun: boolean; startAt: string | null; priority: number; deadline: string | null; node: string | null; seq: number; input: Json | null; compensateOnFailure: boolean; retryOf: string | null; forkedFrom: string | null; parentExecutionId: string | null; parentStepId: string | null; parentIndex: number | null; labels: Json; createdBy: { kind: ActorKind; name: string | null; client: string | null } | null; request: { query: string } | null; plan: { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[] } } | null };
export type ExecutionPageVariables = { id: string };
export const ExecutionPage: Operation<ExecutionPageResult, ExecutionPageVariables> = "query ExecutionPage($id:ID!){execution(executionId:$id){...RunRow priority deadline node seq input compensateOnFailure retryOf forkedFrom parentExecutionId parentStepId parentIndex labels createdBy{...WhoActed}request{query}plan{...PlanWritten}}}fragment RunRow on Execution{executionId requestId planId state mode createdAt startedAt finishedAt total successful failed skipped cancelled dryRun startAt}fragment WhoActed on Actor{kind name client}fragment PlanWritten on Plan{planId requestId version query createdAt planner tools{...Step}diagnostics{...Problem}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}fragment Problem on Diagnostic{severity code path message help}";
export type Finding = { code: string; severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; until: string | null; message: string; causeSeq: number | null; causeExecutionId: string | null; remedies: ({ label: string; command: string | null; mutation: string | null; variables: Json | null; isDangerous: boolean })[] };
export type ExecutionFindingsResult = { execution: { findings: ({ code: string; severity: Severity; kind: FindingKind; stepId: string | null; index: number | null; at: string | null; until: string | null; message: string; causeSeq: number | null; causeExecutionId: string | null; remedies: ({ label: string; command: string | null; mutation: string | null; variables: Json | null; isDangerous: boolean })[] })[] } | null };
export type ExecutionFindingsVariables = { id: string; atSeq?: number | null };
export const ExecutionFindings: Operation<ExecutionFindingsResult, ExecutionFindingsVariables> = "query ExecutionFindings($id:ID!$atSeq:Int){execution(executionId:$id){findings(atSeq:$atSeq first:100){...Finding}}}fragment Finding on Finding{code severity kind stepId index at until message causeSeq causeExecutionId remedies{label command mutation variables isDangerous}}";
export type ExecutionOnwardResult = { execution: { next: { executionId: string; plan: { version: number } } | null; replanning: { state: ReplanningState; reason: string; givenUp: string | null } | null; retries: { executionId: string; state: ExecutionState; createdAt: string }[]; forks: { executionId: string; state: ExecutionState; createdAt: string }[] } | null };
export type ExecutionOnwardVariables = { id: string };
export const ExecutionOnward: Operation<ExecutionOnwardResult, ExecutionOnwardVariables> = "query ExecutionOnward($id:ID!){execution(executionId:$id){next{executionId plan{version}}replanning{state reason givenUp}retries{executionId state createdAt}forks{executionId state createdAt}}}";
export type WhoActed = { kind: ActorKind; name: string | null; client: string | null };
export type Happened = { seq: number; at: string; type: string; stepId: string | null; attempt: number | null; actor: { kind: ActorKind; name: string | null; client: string | null } | null; data: Json };
export type MoreEventsResult = { execution: { seq: number; events: ({ seq: number; at: string; type: string; stepId: string | null; attempt: number | null; actor: { kind: ActorKind; name: string | null; client: string | null } | null; data: Json })[] } | null };
export type MoreEventsVariables = { id: string; afterSeq: number };
export const MoreEvents: Operation<MoreEventsResult, MoreEventsVariables> = "query MoreEvents($id:ID!$afterSeq:Int!){execution(executionId:$id){seq events(afterSeq:$afterSeq first:10000){...Happened}}}fragment Happened on ExecutionEvent{seq at type stepId attempt actor{...WhoActed}data(maxBytes:2000)}fragment WhoActed on Actor{kind name client}";
export type HappeningResult = { executionEvents: { seq: number; at: string; type: string; stepId: string | null; attempt: number | null; actor: { kind: ActorKind; name: string | null; client: string | null } | null; data: Json } };
export type HappeningVariables = { id: string; afterSeq: number };
export const Happening: Operation<HappeningResult, HappeningVariables> = "subscription Happening($id:ID!$afterSeq:Int!){executionEvents(executionId:$id afterSeq:$afterSeq){...Happened}}fragment Happened on ExecutionEvent{seq at type stepId attempt actor{...WhoActed}data(maxBytes:2000)}fragment WhoActed on Actor{kind name client}";
export type RequestHappeningResult = { requestEvents: { type: string; executionId: string | null; planId: string | null; seq: number | null } };
export type RequestHappeningVariables = { id: string };
export const RequestHappening: Operation<RequestHappeningResult, RequestHappeningVariables> = "subscription RequestHappening($id:ID!){requestEvents(requestId:$id){type executionId planId seq}}";
export type StepDetailResult = { execution: { step: { stepId: string; state: StepState; attempts: number; startedAt: string | null; finishedAt: string | null; resolvedParameters: Json | null; output: Json | null; reused: boolean; childExecutionId: string | null; settled: SettledOutcome | null; settledOutput: Json | null; settledComment: string | null; missingCompensation: { toolName: string; parameters: Json } | null; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null; itemTally: { total: number; pending: number; running: number; waiting: number; successful: number; failed: number; skipped: number; cancelled: number } | null; items: ({ index: number | null; state: StepState; attempts: number; startedAt: string | null; workMs: number | null; waitedMs: number | null; resolvedParameters: Json | null; output: Json | null; childExecutionId: string | null; waitsFor: string | null; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null; compensation: { state: StepState; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null } | null })[]; compensation: { state: StepState; attempts: number; durationMs: number | null; resolvedParameters: Json | null; output: Json | null; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null } | null } | null } | null };
export type StepDetailVariables = { id: string; stepId: string; items: number; after?: number | null; states?: StepState[] | null };
export const StepDetail: Operation<StepDetailResult, StepDetailVariables> = "query StepDetail($id:ID!$stepId:String!$items:Int!$after:Int$states:[StepState!]){execution(executionId:$id){step(stepId:$stepId){stepId state attempts startedAt finishedAt resolvedParameters output reused childExecutionId settled settledOutput settledComment missingCompensation{toolName parameters}error{code message attempt retryable index}itemTally{total pending running waiting successful failed skipped cancelled}items(first:$items afterIndex:$after state:$states){index state attempts startedAt workMs waitedMs resolvedParameters output childExecutionId waitsFor error{code message attempt retryable index}compensation{state error{code message attempt retryable index}}}compensation{state attempts durationMs resolvedParameters output error{code message attempt retryable index}}}}}";
export type ItemDetailResult = { execution: { step: { items: ({ index: number | null; state: StepState; attempts: number; startedAt: string | null; workMs: number | null; waitedMs: number | null; resolvedParameters: Json | null; output: Json | null; childExecutionId: string | null; waitsFor: string | null; settled: SettledOutcome | null; settledOutput: Json | null; settledComment: string | null; missingCompensation: { toolName: string; parameters: Json } | null; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null; compensation: { state: StepState; error: { code: string; message: string; attempt: number; retryable: boolean; index: number | null } | null } | null })[] } | null } | null };
export type ItemDetailVariables = { id: string; stepId: string; after?: number | null };
export const ItemDetail: Operation<ItemDetailResult, ItemDetailVariables> = "query ItemDetail($id:ID!$stepId:String!$after:Int){execution(executionId:$id){step(stepId:$stepId){items(first:1 afterIndex:$after){index state attempts startedAt workMs waitedMs resolvedParameters output childExecutionId waitsFor settled settledOutput settledComment missingCompensation{toolName parameters}error{code message attempt retryable index}compensation{state error{code message attempt retryable index}}}}}}";
export type ExecutionOutputsResult = { execution: { executionResults: { outputs: Json; variables: Json; errors: ({ stepId: string; index: number | null; toolName: string; code: string; message: string; attempt: number; retryable: boolean })[] } } | null };
export type ExecutionOutputsVariables = { id: string };
export const ExecutionOutputs: Operation<ExecutionOutputsResult, ExecutionOutputsVariables> = "query ExecutionOutputs($id:ID!){execution(executionId:$id){executionResults{outputs variables errors{stepId index toolName code message attempt retryable}}}}";
export type LogEventsResult = { execution: { seq: number; events: ({ seq: number; at: string; type: string; stepId: string | null; attempt: number | null; data: Json })[] } | null };
export type LogEventsVariables = { id: string; afterSeq: number };
export const LogEvents: Operation<LogEventsResult, LogEventsVariables> = "query LogEvents($id:ID!$afterSeq:Int!){execution(executionId:$id){seq events(afterSeq:$afterSeq first:2000){seq at type stepId attempt data}}}";
export type CompareExecutionsResult = { a: { executionId: string; requestId: string; planId: string; state: ExecutionState; createdAt: string; startedAt: string | null; finishedAt: string | null; input: Json | null; outputs: Json; retryOf: string | null; request: { query: string } | null; plan: { version: number }; steps: ({ stepId: string; toolName: string; state: StepState; attempts: number; workMs: number | null; waitedMs: number | null; error: { code: string; message: string } | null })[] } | null; b: { executionId: string; requestId: string; planId: string; state: ExecutionState; createdAt: string; startedAt: string | null; finishedAt: string | null; input: Json | null; outputs: Json; retryOf: string | null; request: { query: string } | null; plan: { version: number }; steps: ({ stepId: string; toolName: string; state: StepState; attempts: number; workMs: number | null; waitedMs: number | null; error: { code: string; message: string } | null })[] } | null };
export type CompareExecutionsVariables = { a: string; b: string };
export const CompareExecutions: Operation<CompareExecutionsResult, CompareExecutionsVariables> = "query CompareExecutions($a:ID!$b:ID!){a:execution(executionId:$a){...Compared}b:execution(executionId:$b){...Compared}}fragment Compared on Execution{executionId requestId planId state createdAt startedAt finishedAt input outputs retryOf request{query}plan{version}steps{stepId toolName state attempts workMs waitedMs error{code message}}}";
export type Compared = { executionId: string; requestId: string; planId: string; state: ExecutionState; createdAt: string; startedAt: string | null; finishedAt: string | null; input: Json | null; outputs: Json; retryOf: string | null; request: { query: string } | null; plan: { version: number }; steps: ({ stepId: string; toolName: string; state: StepState; attempts: number; workMs: number | null; waitedMs: number | null; error: { code: string; message: string } | null })[] };
export type RunsOfPlanResult = { executions: { nodes: ({ executionId: string; state: ExecutionState; createdAt: string; input: Json | null; dryRun: boolean })[] } };
export type RunsOfPlanVariables = { planId: string };
export const RunsOfPlan: Operation<RunsOfPlanResult, RunsOfPlanVariables> = "query RunsOfPlan($planId:ID!){executions(filter:{planId:$planId parts:false}first:50){nodes{executionId state createdAt input dryRun}}}";
export type EarlierRunsResult = { executions: { nodes: { executionId: string; state: ExecutionState; createdAt: string }[] } };
export type EarlierRunsVariables = { requestId: string };
export const EarlierRuns: Operation<EarlierRunsResult, EarlierRunsVariables> = "query EarlierRuns($requestId:ID!){executions(filter:{requestId:$requestId parts:false}first:20){nodes{executionId state createdAt}}}";
export type InputOfResult = { execution: { input: Json | null } | null };
export type InputOfVariables = { id: string };
export const InputOf: Operation<InputOfResult, InputOfVariables> = "query InputOf($id:ID!){execution(executionId:$id){input}}";
export type PlanVersionsResult = { request: { plans: { planId: string; version: number }[] } | null };
export type PlanVersionsVariables = { id: string };
export const PlanVersions: Operation<PlanVersionsResult, PlanVersionsVariables> = "query PlanVersions($id:ID!){request(requestId:$id){plans{planId version}}}";
export type OneEventResult = { execution: { events: { seq: number; data: Json }[] } | null };
export type OneEventVariables = { id: string; afterSeq: number };
export const OneEvent: Operation<OneEventResult, OneEventVariables> = "query OneEvent($id:ID!$afterSeq:Int!){execution(executionId:$id){events(afterSeq:$afterSeq first:1){seq data}}}";
export type ExecutePlanResult = { executePlan: { executionId: string } };
export type ExecutePlanVariables = { id: string; options?: ExecutionOptions | null };
export const ExecutePlan: Operation<ExecutePlanResult, ExecutePlanVariables> = "mutation ExecutePlan($id:ID!$options:ExecutionOptions){executePlan(planId:$id options:$options){executionId}}";
export type RunSavedPlanResult = { runSavedPlan: { executionId: string } };
export type RunSavedPlanVariables = { name: string; input?: Json | null; options?: ExecutionOptions | null };
export const RunSavedPlan: Operation<RunSavedPlanResult, RunSavedPlanVariables> = "mutation RunSavedPlan($name:String!$input:JSON$options:ExecutionOptions){runSavedPlan(name:$name input:$input options:$options){executionId}}";
export type CancelExecutionResult = { cancelExecution: { executionId: string; state: ExecutionState } };
export type CancelExecutionVariables = { id: string; reason?: string | null };
export const CancelExecution: Operation<CancelExecutionResult, CancelExecutionVariables> = "mutation CancelExecution($id:ID!$reason:String){cancelExecution(executionId:$id reason:$reason){executionId state}}";
export type PauseExecutionResult = { pauseExecution: { executionId: string; state: ExecutionState } };
export type PauseExecutionVariables = { id: string };
export const PauseExecution: Operation<PauseExecutionResult, PauseExecutionVariables> = "mutation PauseExecution($id:ID!){pauseExecution(executionId:$id){executionId state}}";
export type ResumeExecutionResult = { resumeExecution: { executionId: string; state: ExecutionState } };
export type ResumeExecutionVariables = { id: string };
export const ResumeExecution: Operation<ResumeExecutionResult, ResumeExecutionVariables> = "mutation ResumeExecution($id:ID!){resumeExecution(executionId:$id){executionId state}}";
export type RetryExecutionResult = { retryExecution: { executionId: string } };
export type RetryExecutionVariables = { id: string; fromStep?: string | null; mode?: RetryMode | null };
export const RetryExecution: Operation<RetryExecutionResult, RetryExecutionVariables> = "mutation RetryExecution($id:ID!$fromStep:String$mode:RetryMode){retryExecution(executionId:$id fromStep:$fromStep mode:$mode){executionId}}";
export type RepeatedCallsResult = { execution: { repeatedCalls: { stepId: string; toolName: string; calls: number; outcomeUnknown: boolean }[] } | null };
export type RepeatedCallsVariables = { id: string; mode: RetryMode; fromStep?: string | null };
export const RepeatedCalls: Operation<RepeatedCallsResult, RepeatedCallsVariables> = "query RepeatedCalls($id:ID!$mode:RetryMode!$fromStep:String){execution(executionId:$id){repeatedCalls(mode:$mode fromStep:$fromStep){stepId toolName calls outcomeUnknown}}}";
export type ForkPreviewResult = { execution: { forkPreview: { keptSteps: string[]; onceCalls: ({ stepId: string; toolName: string; calls: number | null; repeated: boolean; outcomeUnknown: boolean })[] } } | null };
export type ForkPreviewVariables = { id: string; planId?: string | null; input?: Json | null; set?: StepChangeInput[] | null };
export const ForkPreview: Operation<ForkPreviewResult, ForkPreviewVariables> = "query ForkPreview($id:ID!$planId:ID$input:JSON$set:[StepChangeInput!]){execution(executionId:$id){forkPreview(planId:$planId input:$input set:$set){keptSteps onceCalls{stepId toolName calls repeated outcomeUnknown}}}}";
export type StepOutputResult = { execution: { step: { output: Json | null } | null } | null };
export type StepOutputVariables = { id: string; stepId: string };
export const StepOutput: Operation<StepOutputResult, StepOutputVariables> = "query StepOutput($id:ID!$stepId:String!){execution(executionId:$id){step(stepId:$stepId){output}}}";
export type ForkExecutionResult = { forkExecution: { executionId: string } };
export type ForkExecutionVariables = { id: string; planId?: string | null; input?: Json | null; set?: StepChangeInput[] | null };
export const ForkExecution: Operation<ForkExecutionResult, ForkExecutionVariables> = "mutation ForkExecution($id:ID!$planId:ID$input:JSON$set:[StepChangeInput!]){forkExecution(executionId:$id planId:$planId input:$input set:$set){executionId}}";
export type SettledStepsResult = { execution: { steps: ({ stepId: string; settled: SettledOutcome | null })[] } | null };
export type SettledStepsVariables = { id: string };
export const SettledSteps: Operation<SettledStepsResult, SettledStepsVariables> = "query SettledSteps($id:ID!){execution(executionId:$id){steps{stepId settled}}}";
export type UndoCallsResult = { execution: { undoCalls: ({ executionId: string; stepId: string; index: number | null; toolName: string })[] } | null };
export type UndoCallsVariables = { id: string };
export const UndoCalls: Operation<UndoCallsResult, UndoCallsVariables> = "query UndoCalls($id:ID!){execution(executionId:$id){undoCalls{executionId stepId index toolName}}}";
export type LastRunsResult = { executions: { nodes: { executionId: string; dryRun: boolean }[] } };
export type LastRunsVariables = { requestId: string };
export const LastRuns: Operation<LastRunsResult, LastRunsVariables> = "query LastRuns($requestId:ID!){executions(filter:{requestId:$requestId parts:false}first:50){nodes{executionId dryRun}}}";
export type ApproveStepResult = { approveStep: { executionId: string } };
export type ApproveStepVariables = { id: string; stepId: string; approved: boolean; comment?: string | null };
export const ApproveStep: Operation<ApproveStepResult, ApproveStepVariables> = "mutation ApproveStep($id:ID!$stepId:String!$approved:Boolean!$comment:String){approveStep(executionId:$id stepId:$stepId approved:$approved comment:$comment){executionId}}";
export type SettleStepResult = { settleStep: { executionId: string } };
export type SettleStepVariables = { id: string; stepId: string; item?: number | null; outcome: SettledOutcome; output?: Json | null; comment?: string | null };
export const SettleStep: Operation<SettleStepResult, SettleStepVariables> = "mutation SettleStep($id:ID!$stepId:String!$item:Int$outcome:SettledOutcome!$output:JSON$comment:String){settleStep(executionId:$id stepId:$stepId item:$item outcome:$outcome output:$output comment:$comment){executionId}}";
export type SignalExecutionResult = { signalExecution: { executionId: string } };
export type SignalExecutionVariables = { id: string; name: string; payload?: Json | null };
export const SignalExecution: Operation<SignalExecutionResult, SignalExecutionVariables> = "mutation SignalExecution($id:ID!$name:String!$payload:JSON){signalExecution(executionId:$id name:$name payload:$payload){executionId}}";
export type PlanQueryResult = { createPlanWithRequestId: { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } };
export type PlanQueryVariables = { query: string; options?: PlanningOptions | null; direction?: LayoutDirection | null };
export const PlanQuery: Operation<PlanQueryResult, PlanQueryVariables> = "mutation PlanQuery($query:String!$options:PlanningOptions$direction:LayoutDirection){createPlanWithRequestId(query:$query options:$options){...PlanDrawn}}fragment PlanDrawn on Plan{...PlanWritten layout(direction:$direction nodeWidth:196 nodeHeight:50){...Drawing}}fragment PlanWritten on Plan{planId requestId version query createdAt planner tools{...Step}diagnostics{...Problem}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}fragment Problem on Diagnostic{severity code path message help}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type CreatePlanResult = { createPlan: { plan: { planId: string; requestId: string; version: number; query: string; planner: string } | null; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[] } };
export type CreatePlanVariables = { input: PlanInput };
export const CreatePlan: Operation<CreatePlanResult, CreatePlanVariables> = "mutation CreatePlan($input:PlanInput!){createPlan(input:$input){plan{...PlanSummary}diagnostics{...Problem}}}fragment PlanSummary on Plan{planId requestId version query planner}fragment Problem on Diagnostic{severity code path message help}";
export type RevisePlanResult = { revisePlan: { plan: { planId: string; requestId: string; version: number; query: string; planner: string } | null; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[] } };
export type RevisePlanVariables = { id: string; input: PlanInput };
export const RevisePlan: Operation<RevisePlanResult, RevisePlanVariables> = "mutation RevisePlan($id:ID!$input:PlanInput!){revisePlan(planId:$id input:$input){plan{...PlanSummary}diagnostics{...Problem}}}fragment PlanSummary on Plan{planId requestId version query planner}fragment Problem on Diagnostic{severity code path message help}";
export type ValidatePlanResult = { validatePlan: { plan: { planId: string; requestId: string; version: number; query: string; createdAt: string; planner: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } | null; diagnostics: ({ severity: Severity; code: string; path: string; message: string; help: string | null })[] } };
export type ValidatePlanVariables = { input: PlanInput; direction?: LayoutDirection | null };
export const ValidatePlan: Operation<ValidatePlanResult, ValidatePlanVariables> = "query ValidatePlan($input:PlanInput!$direction:LayoutDirection){validatePlan(input:$input){plan{...PlanDrawn}diagnostics{...Problem}}}fragment PlanDrawn on Plan{...PlanWritten layout(direction:$direction nodeWidth:196 nodeHeight:50){...Drawing}}fragment PlanWritten on Plan{planId requestId version query createdAt planner tools{...Step}diagnostics{...Problem}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}fragment Problem on Diagnostic{severity code path message help}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type DraftLayoutResult = { validatePlan: { plan: { planId: string; tools: ({ stepId: string; toolName: string; parameters: Json; dependsOn: string[]; outputMapping: Json | null; effect: Effect; plan: string | null; when: string | null; forEach: string | null; compensate: Json | null; timeoutMs: number | null; idleTimeoutMs: number | null; cacheTtlMs: number | null; maxParallel: number | null; retry: Json | null; onError: string; requiresApproval: boolean })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } | null } };
export type DraftLayoutVariables = { input: PlanInput; direction?: LayoutDirection | null; sizes?: NodeSizeInput[] | null };
export const DraftLayout: Operation<DraftLayoutResult, DraftLayoutVariables> = "query DraftLayout($input:PlanInput!$direction:LayoutDirection$sizes:[NodeSizeInput!]){validatePlan(input:$input){plan{planId tools{...Step}layout(direction:$direction nodeWidth:196 nodeHeight:50 sizes:$sizes){...Drawing}}}}fragment Step on ToolExecution{stepId toolName parameters dependsOn outputMapping effect plan when forEach compensate timeoutMs idleTimeoutMs cacheTtlMs maxParallel retry onError requiresApproval}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type ToolSetsResult = { toolSets: ({ name: string; description: string; active: boolean; source: string; status: string; error: string | null; tools: { name: string; qualifiedName: string; description: string; callable: boolean; effect: Effect; examples: string[] }[] })[]; toolUsage: ({ qualifiedName: string; calls: number; failures: number; lastCalledAt: string | null; p50Ms: number | null; p99Ms: number | null })[] };
export type ToolSetsVariables = {  };
export const ToolSets: Operation<ToolSetsResult, ToolSetsVariables> = "query ToolSets{toolSets{name description active source status error tools{name qualifiedName description callable effect examples}}toolUsage{qualifiedName calls failures lastCalledAt p50Ms p99Ms}}";
export type ToolOneResult = { tool: { name: string; qualifiedName: string; description: string; toolSet: string; source: string; active: boolean; callable: boolean; effect: Effect; inputSchema: Json; outputSchema: Json | null; examples: string[]; usage: { toolName: string; calls: number; failures: number; lastCalledAt: string | null; p50Ms: number | null; p99Ms: number | null } } | null; toolHistory: ({ callId: string; status: string; parameters: Json; result: Json | null; error: string | null; durationMs: number; at: string })[]; toolFollowers: { toolName: string; score: number }[] };
export type ToolOneVariables = { name: string };
export const ToolOne: Operation<ToolOneResult, ToolOneVariables> = "query ToolOne($name:String!){tool(name:$name){name qualifiedName description toolSet source active callable effect inputSchema outputSchema examples usage{toolName calls failures lastCalledAt p50Ms p99Ms}}toolHistory(toolName:$name first:20){callId status parameters result error durationMs at}toolFollowers(name:$name){toolName score}}";
export type ToolNamesResult = { tools: ({ name: string; qualifiedName: string; description: string; inputSchema: Json; outputSchema: Json | null })[] };
export type ToolNamesVariables = {  };
export const ToolNames: Operation<ToolNamesResult, ToolNamesVariables> = "query ToolNames{tools(activeOnly:true){name qualifiedName description inputSchema outputSchema}}";
export type ActivateToolSetsResult = { activateToolSets: { changed: string[]; notFound: string[]; refused: string[] } };
export type ActivateToolSetsVariables = { names: string[] };
export const ActivateToolSets: Operation<ActivateToolSetsResult, ActivateToolSetsVariables> = "mutation ActivateToolSets($names:[String!]!){activateToolSets(names:$names){changed notFound refused}}";
export type DeactivateToolSetsResult = { deactivateToolSets: { changed: string[]; notFound: string[]; refused: string[] } };
export type DeactivateToolSetsVariables = { names: string[] };
export const DeactivateToolSets: Operation<DeactivateToolSetsResult, DeactivateToolSetsVariables> = "mutation DeactivateToolSets($names:[String!]!){deactivateToolSets(names:$names){changed notFound refused}}";
export type CallToolResult = { callTool: { callId: string; tool: string; status: string; parameters: Json; result: Json | null; error: string | null; durationMs: number; at: string } };
export type CallToolVariables = { name: string; parameters?: Json | null };
export const CallTool: Operation<CallToolResult, CallToolVariables> = "mutation CallTool($name:String!$parameters:JSON){callTool(name:$name parameters:$parameters){callId tool status parameters result error durationMs at}}";
export type SelectToolsResult = { selectTools: ({ score: number; hit: boolean; leastSimilar: number | null; leastSimilarExample: string | null; tool: { qualifiedName: string; description: string; toolSet: string; active: boolean } })[] };
export type SelectToolsVariables = { query: string; by?: SelectionCriterion | null; limit?: number | null; activeOnly?: boolean | null };
export const SelectTools: Operation<SelectToolsResult, SelectToolsVariables> = "query SelectTools($query:String!$by:SelectionCriterion$limit:Int$activeOnly:Boolean){selectTools(query:$query by:$by limit:$limit activeOnly:$activeOnly){score hit leastSimilar leastSimilarExample tool{qualifiedName description toolSet active}}}";
export type CollisionsResult = { toolCollisions: { a: string; b: string; similarity: number }[] };
export type CollisionsVariables = { threshold?: number | null; similarity?: CollisionSimilarity | null };
export const Collisions: Operation<CollisionsResult, CollisionsVariables> = "query Collisions($threshold:Float$similarity:CollisionSimilarity){toolCollisions(threshold:$threshold similarity:$similarity){a b similarity}}";
export type ToolkitDrawn = { actions: { name: string; description: string }[]; tools: { name: string; qualifiedName: string; description: string; source: string }[]; edges: ({ from: string; to: string; kind: string; score: number; learned: number | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } };
export type ToolkitPageResult = { toolkit: { actions: { name: string; description: string }[]; tools: { name: string; qualifiedName: string; description: string; source: string }[]; edges: ({ from: string; to: string; kind: string; score: number; learned: number | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } };
export type ToolkitPageVariables = {  };
export const ToolkitPage: Operation<ToolkitPageResult, ToolkitPageVariables> = "query ToolkitPage{toolkit{...ToolkitDrawn}}fragment ToolkitDrawn on Toolkit{actions{name description}tools{name qualifiedName description source}edges{from to kind score learned}layout(direction:DOWN nodeWidth:180 nodeHeight:40){...Drawing}}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
export type RecommendedResult = { recommendSubgraph: { actions: { name: string; description: string }[]; tools: { name: string; qualifiedName: string; description: string; source: string }[]; edges: ({ from: string; to: string; kind: string; score: number; learned: number | null })[]; layout: { width: number; height: number; nodes: { name: string; x: number; y: number; width: number; height: number }[]; edges: { from: string; to: string; points: number[] }[] } } };
export type RecommendedVariables = { actions: string[]; threshold?: number | null; hops?: number | null };
export const Recommended: Operation<RecommendedResult, RecommendedVariables> = "query Recommended($actions:[String!]!$threshold:Float$hops:Int){recommendSubgraph(actions:$actions threshold:$threshold hops:$hops){...ToolkitDrawn}}fragment ToolkitDrawn on Toolkit{actions{name description}tools{name qualifiedName description source}edges{from to kind score learned}layout(direction:DOWN nodeWidth:180 nodeHeight:40){...Drawing}}fragment Drawing on Layout{width height nodes{name x y width height}edges{from to points}}";
