//! Limits of sizes, numbers and times.

use std::time::Duration;

/// Maximum size of a plan as JSON, in bytes. A larger draft is a mistake or an attack.
pub const PLAN_BYTES: usize = 256 << 20;
/// Maximum number of steps of a plan: four times as many as the plan of the benchmark has, which is
/// larger than any plan in use.
pub const PLAN_STEPS: usize = 400_000;
/// Maximum nesting of a step's parameters. It is below the 127 levels that `serde_json` reads,
/// because events add a few levels.
pub const JSON_DEPTH: usize = 96;
/// Maximum nesting of a record. It is above [`JSON_DEPTH`], because a record may contain a step's
/// parameters.
pub const RECORD_DEPTH: usize = JSON_DEPTH + 8;
/// Maximum size of a tool's output, in bytes, if the configuration sets no other. A tool should
/// write a larger output to a file and return the name of the file.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// Maximum length of a base64 text that stays in an output. Larger binaries are stored beside the
/// log. A small icon stays below the limit.
pub const INLINE_BINARY_BYTES: usize = 64 << 10;
/// Maximum total length of the base64 texts that replace blob references in one call. All of them
/// are in memory at the same time.
pub const RESTORED_BYTES: usize = 64 << 20;
/// Maximum size of the rendered parameters of one call, in bytes, because one event contains them.
pub const PARAMETER_BYTES: usize = 8 << 20;
pub const QUERY_BYTES: usize = 64 << 10;
/// Maximum bytes of the query in the head of an execution. It is low, because stores rewrite heads
/// often.
pub const HEAD_QUERY_BYTES: usize = 512;
/// Maximum bytes of the error message in the head of an execution. The log has the whole message.
pub const HEAD_MESSAGE_BYTES: usize = 1 << 10;
/// Maximum bytes of an idempotency key, a signal's name, a comment or a reason.
pub const TEXT_BYTES: usize = 4 << 10;
/// Maximum bytes of events in one document of a store. One event may exceed it, up to
/// [`DOCUMENT_BYTES`].
pub const APPEND_BYTES: usize = 8 << 20;
/// Maximum size of one document of a store, in bytes. `MongoDB` refuses documents above 16 MiB. The
/// limit applies to every store, so that data can move between stores.
pub const DOCUMENT_BYTES: usize = 15 << 20;
/// Maximum number of events that one read of a log returns. The read always completes its last
/// document, so it may exceed the limit.
pub const READ_EVENTS: usize = 4_096;
/// Maximum bytes of an event's error message. A longer message loses its middle.
pub const MESSAGE_BYTES: usize = 8 << 10;
/// Maximum bytes of a progress message. The limit is low, because a call makes many of them.
pub const PROGRESS_BYTES: usize = 512;
/// Minimum time between two progress reports of a call, because each report adds an event to the
/// log.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Number of progress reports of an attempt that are recorded at full rate. Later reports are
/// recorded every [`LATE_PROGRESS_INTERVAL`], so that the log of a long attempt stays short.
pub const FULL_RATE_PROGRESS_EVENTS: u32 = 600;
/// Time between two recorded reports of a long attempt.
pub const LATE_PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of attempts of a step, even if its policy allows more.
pub const ATTEMPTS: u32 = 1_000;
/// Number of times that a task starts again after its worker was lost.
pub const INTERRUPTIONS: u32 = 100;
/// Maximum number of steps that run at the same time in parallel mode if `maxParallel` is not set.
pub const DEFAULT_MAX_PARALLEL: u32 = 256;
/// Maximum number of consecutive automatic replans, even if the plan or the caller asks for more.
pub const REPLANS: u32 = 16;
/// Number of consecutive automatic replans if the plan asks for replans and the caller set no
/// number.
pub const DEFAULT_REPLANS: u32 = 4;
/// Maximum number of attempts to replan one execution. Only attempts without a known result count,
/// for example after a crash.
pub const REPLAN_ATTEMPTS: usize = 5;
pub const STEP_TIMEOUT: Duration = Duration::from_mins(5);
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Time without a heartbeat after which other workers take over a worker's executions, unless the
/// configuration sets another time.
pub const LEASE_TIME: Duration = Duration::from_secs(5);
/// Interval at which a waiting reader polls the store if it is not notified.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of executions that one worker drives at the same time, unless the configuration
/// sets another number.
pub const EXECUTIONS: usize = 4_096;
/// Shortest wait for which an execution that only waits is removed from memory, unless the
/// configuration sets another time.
pub const PARK_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of items of the list that a step repeats for. Each item adds events to the log,
/// so a list without a limit could fill the store.
pub const ITEMS: usize = 100_000;
/// Maximum number of executions above a child execution. A plan cannot contain itself, but plans
/// can be nested deeply.
pub const ANCESTORS: u32 = 16;
/// Maximum number of signals that an execution keeps for later steps.
pub const KEPT_SIGNALS: usize = 1_000;
/// Maximum bytes of the outputs that an execution reuses from another execution.
pub const REUSED_BYTES: usize = 8 << 20;
/// Maximum number of idempotency keys that a retry takes over from calls with an unknown outcome.
pub const CALL_KEYS: usize = 10_000;
/// Maximum number of commands that wait for one execution.
pub const INBOX_COMMANDS: usize = 1_000;
/// Maximum number of commands that one poll of all inboxes returns. The following polls return the
/// remaining commands.
pub const INBOX_POLL_COMMANDS: usize = 4_096;
/// Approximate maximum bytes of commands that one poll of all inboxes returns.
pub const INBOX_POLL_BYTES: usize = 16 << 20;
/// Maximum number of outputs in the output cache. Beyond it, the outputs that expire first are
/// dropped.
pub const OUTPUT_CACHE_ENTRIES: usize = 100_000;
/// Maximum bytes of a record's name. The limit is low, because the names are keys of indexes.
pub const NAME_BYTES: usize = 512;
/// Maximum characters of a name in an audit entry.
pub const AUDIT_NAME_CHARS: usize = 256;
/// Maximum bytes of the detail of an audit entry.
pub const AUDIT_DETAIL_BYTES: usize = 2 << 10;
/// Maximum number of calls outside plans whose records are kept.
pub const CALL_HISTORY: usize = 10_000;
/// Maximum number of simultaneous calls that one limit can allow, because one document of the store
/// names all of them.
pub const LIMIT_HOLDERS: u32 = 10_000;
/// Maximum bytes of a condition. A longer condition would be unreadable.
pub const CONDITION_BYTES: usize = 4 << 10;
/// Maximum nesting of brackets in a condition. The parser makes about ten nested calls per level.
pub const CONDITION_DEPTH: usize = 24;
/// Maximum number of operators, dots and brackets in a condition, except `&&` and `||`. Each
/// operator or dot of a chain such as `a + b + c` adds a level to the parser's tree.
pub const CONDITION_OPERATORS: usize = 128;
/// Maximum number of operations of one evaluation of a condition. It is not enough for nested loops
/// over long lists.
pub const CONDITION_WORK: usize = 1_000_000;
/// Maximum bytes that a pattern in a condition can compile to. The time of a match grows with these
/// bytes.
pub const CONDITION_PATTERN_BYTES: usize = 256 << 10;
/// Maximum number of toolsets that are added to the configured toolsets. Every node connects to
/// each of them, so this limit bounds the connections of a node.
pub const TOOL_SETS: usize = 1_000;
pub const REGISTERED_TOOLS: usize = 100_000;
/// Maximum number of contexts, whose data the conditions of toolsets read.
pub const CONTEXTS: usize = 1_000;
/// Maximum bytes of a model's reply that are read for tool calls: four times the longest reply of a
/// model.
pub const REPLY_BYTES: usize = 4 << 20;
/// Maximum number of tool calls in one reply. A model that writes more calls repeats itself.
pub const REPLY_CALLS: usize = 256;
/// Maximum number of priorities that a search for work visits, because each needs an index lookup.
/// Work of all other priorities is ordered by due time only.
pub const PRIORITIES: usize = 32;
/// Maximum number of tokens that take turns in a search for work, because each needs an index
/// lookup. Work of all other tokens is found when it has been due the longest.
pub const DUE_TOKENS: usize = 256;
/// Maximum number of requests of a token whose plans a page sorts. If a token has more requests, its
/// plans are searched in the order of the list instead.
pub const SORTED_REQUESTS: usize = 2_000;
/// Maximum number of different words of a search, because each is looked up in every query.
pub const SEARCH_WORDS: usize = 64;
/// Approximate maximum bytes of events, inputs and outputs in one field of an answer. Several
/// copies are in memory while the answer is written.
pub const ANSWER_BYTES: usize = 32 << 20;
/// Cost of compiling the largest pattern, in operations of a condition.
pub const PATTERN_COST: usize = 8_000;
/// Maximum total cost of compiling the patterns of a plan. A small pattern costs 1,000 and a large
/// one 8,000.
pub const PLAN_PATTERNS: usize = 16_000_000;
/// Maximum number of actions and tools in the toolkit graph. A larger graph is of no use to people.
pub const TOOLKIT_NODES: usize = 10_000;
pub const TOOLKIT_EDGES: usize = 50_000;
/// Maximum number of actions and tools in one drawing. A larger drawing is unreadable.
pub const DRAWN_NODES: usize = 4_000;
pub const DRAWN_EDGES: usize = 20_000;
/// Maximum length of a text's vector: twice the length of the longest vectors of known models.
pub const VECTOR_LEN: usize = 8_192;
/// Maximum bytes of a JSON Schema. No model reads more for one tool.
pub const SCHEMA_BYTES: usize = 1 << 20;
/// Maximum nesting of a JSON Schema. A schema that is parsed from text has at most 127 levels, the
/// limit of `serde_json`.
pub const SCHEMA_DEPTH: usize = 128;
/// Maximum number of schemas that are evaluated for one value, not counting the schemas of its
/// parts. A union of hundreds of types stays far below this limit.
pub const SCHEMA_EXPANSION: u64 = 20_000;
/// Maximum number of schemas in a chain of references for the same value, because each schema uses
/// stack.
pub const SCHEMA_CHAIN: usize = 128;
/// Maximum bytes that all patterns of a JSON Schema can compile to.
pub const SCHEMA_PATTERN_BYTES: usize = 64 << 20;
