//! Limits, each with its reason.

use std::time::Duration;

/// Bytes of JSON of a plan. A larger draft is a mistake or an attack.
pub const PLAN_BYTES: usize = 256 << 20;
/// Steps of a plan: four times as many as the benchmark compiles.
pub const PLAN_STEPS: usize = 400_000;
/// Nesting of a step's parameters. Events add a few levels, and `serde_json` reads 127.
pub const JSON_DEPTH: usize = 96;
/// Nesting of a record, which may contain such parameters.
pub const RECORD_DEPTH: usize = JSON_DEPTH + 8;
/// Bytes of a tool's output. A larger output belongs in a file that the output names.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of base64 that an output contains itself. Larger binaries are kept beside the log. A small
/// icon still fits.
pub const INLINE_BINARY_BYTES: usize = 64 << 10;
/// Bytes of base64 that replace references in one call. They are in memory.
pub const RESTORED_BYTES: usize = 64 << 20;
/// Bytes of the rendered parameters of one call. They are one event.
pub const PARAMETER_BYTES: usize = 8 << 20;
pub const QUERY_BYTES: usize = 64 << 10;
/// Bytes of an idempotency key, a signal's name, a comment or a reason.
pub const TEXT_BYTES: usize = 4 << 10;
/// Bytes of events in one document of a store. `MongoDB` refuses documents above 16 MiB.
pub const APPEND_BYTES: usize = 8 << 20;
/// Bytes of one document. A single event may be larger than [`APPEND_BYTES`].
///
/// `MongoDB` refuses documents above 16 MiB. The limit holds for every store, so that data can move
/// between stores.
pub const DOCUMENT_BYTES: usize = 15 << 20;
/// Events that one read of a log returns, apart from the rest of the last document.
pub const READ_EVENTS: usize = 4_096;
/// Bytes of an event's error message. The middle of a longer message is dropped.
pub const MESSAGE_BYTES: usize = 8 << 10;
/// Bytes of a progress message. There are many, and one line is enough.
pub const PROGRESS_BYTES: usize = 512;
/// Minimum time between two progress reports of a call. Closer reports replace each other.
///
/// People do not read faster, and each report is an event.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Progress reports of an attempt that are recorded at full rate. Later ones are recorded every
/// [`LATE_PROGRESS_INTERVAL`], to limit the log.
pub const FULL_RATE_PROGRESS_EVENTS: u32 = 600;
/// Time between two recorded reports of a long attempt.
pub const LATE_PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
/// Attempts of a step, whatever its policy allows.
pub const ATTEMPTS: u32 = 1_000;
/// Times that a step may crash its worker before it fails.
pub const INTERRUPTIONS: u32 = 100;
/// Steps that run at the same time if `maxParallel` is not set.
pub const DEFAULT_MAX_PARALLEL: u32 = 256;
/// Automatic replans in a row, whatever the plan or the caller asks for.
pub const REPLANS: u32 = 16;
/// Automatic replans in a row if the plan asks for them and the start set no limit.
pub const DEFAULT_REPLANS: u32 = 4;
/// Attempts to replan one execution that may stop without a known result, as after a crash.
pub const REPLAN_ATTEMPTS: usize = 5;
pub const STEP_TIMEOUT: Duration = Duration::from_mins(5);
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Time without a heartbeat after which others take over a worker's executions.
pub const LEASE_TIME: Duration = Duration::from_secs(5);
/// Poll interval of a waiting reader that gets no wake-up.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Executions that one worker drives at the same time.
pub const EXECUTIONS: usize = 4_096;
/// An execution that only waits leaves memory if the wait is longer than this.
pub const PARK_AFTER: Duration = Duration::from_secs(2);
/// Items of a list that a step repeats for. Each is a line in the log.
pub const ITEMS: usize = 100_000;
/// Ancestors of an execution. A plan cannot contain itself, but many plans can be nested.
pub const ANCESTORS: u32 = 16;
/// Signals that an execution keeps for later steps.
pub const KEPT_SIGNALS: usize = 1_000;
/// Bytes of the outputs that an execution reuses from another one.
pub const REUSED_BYTES: usize = 8 << 20;
/// Idempotency keys of calls with an unknown outcome that a retry takes over.
pub const CALL_KEYS: usize = 10_000;
/// Commands that wait for one execution. A client that exceeds it does not wait for answers.
pub const INBOX_COMMANDS: usize = 1_000;
/// Commands that one poll of all inboxes returns. Polls repeat.
pub const INBOX_POLL_COMMANDS: usize = 4_096;
/// Approximate bytes of commands that one poll of all inboxes returns.
pub const INBOX_POLL_BYTES: usize = 16 << 20;
/// Outputs in the output cache. The ones that expire first are dropped.
pub const OUTPUT_CACHE_ENTRIES: usize = 100_000;
/// Bytes of a record's name. Keys of indexes stay small.
pub const NAME_BYTES: usize = 512;
/// Calls outside plans whose records are kept.
pub const CALL_HISTORY: usize = 10_000;
/// Simultaneous calls that one limit can count. All holders are in one document.
pub const LIMIT_HOLDERS: u32 = 10_000;
/// Bytes of a condition. More is unreadable.
pub const CONDITION_BYTES: usize = 4 << 10;
/// Nesting of brackets in a condition. The parser recurses about ten calls per level.
pub const CONDITION_DEPTH: usize = 24;
/// Operators, dots and brackets in a condition, except `&&` and `||`. A chain of them nests in the
/// parser's tree.
pub const CONDITION_OPERATORS: usize = 128;
/// Operations of one evaluation of a condition: a few dozen milliseconds.
///
/// Enough to read each of 10,000 items ten times, but not for nested loops over long lists.
pub const CONDITION_WORK: usize = 1_000_000;
/// Bytes that a pattern in a condition may compile to. The time of a match grows with it.
pub const CONDITION_PATTERN_BYTES: usize = 256 << 10;
/// Toolsets that are added to the configured ones. Every node connects to each.
pub const TOOL_SETS: usize = 1_000;
pub const REGISTERED_TOOLS: usize = 100_000;
/// Contexts. Conditions of toolsets read their data.
pub const CONTEXTS: usize = 1_000;
/// Bytes of a model's reply that are read for tool calls: four times the longest reply of a model.
pub const REPLY_BYTES: usize = 4 << 20;
/// Tool calls in one reply. A model that writes more repeats itself.
pub const REPLY_CALLS: usize = 256;
/// Priorities that a search for work visits. Each is an index lookup. Later work is ordered by due
/// time only.
pub const PRIORITIES: usize = 32;
/// Different words of a search. Each is looked up in every query.
pub const SEARCH_WORDS: usize = 64;
/// Approximate bytes of events, inputs and outputs in one field of an answer. Several copies are in
/// memory while it is written.
pub const ANSWER_BYTES: usize = 32 << 20;
/// Cost of compiling the largest pattern, in operations of a condition.
pub const PATTERN_COST: usize = 8_000;
/// Total cost of compiling the patterns of a plan. A small pattern costs 1,000 and a large one
/// 8,000. The limit takes seconds, not minutes.
pub const PLAN_PATTERNS: usize = 16_000_000;
/// Actions and tools in the toolkit graph. A larger graph is of no use to people.
pub const TOOLKIT_NODES: usize = 10_000;
pub const TOOLKIT_EDGES: usize = 50_000;
/// Actions and tools in one drawing. A larger drawing is unreadable.
pub const DRAWN_NODES: usize = 4_000;
pub const DRAWN_EDGES: usize = 20_000;
/// Length of a text's vector: twice the length of the largest models.
pub const VECTOR_LEN: usize = 8_192;
/// Bytes of a JSON Schema. No model reads more for one tool.
pub const SCHEMA_BYTES: usize = 1 << 20;
/// Nesting of a JSON Schema. `serde_json` reads 127.
pub const SCHEMA_DEPTH: usize = 128;
/// Evaluations of schemas for one value, without its parts. Unions of hundreds of types stay far
/// below.
pub const SCHEMA_EXPANSION: u64 = 20_000;
/// Schemas in a chain of references for the same value. Each uses stack.
pub const SCHEMA_CHAIN: usize = 128;
/// Bytes that all patterns of a JSON Schema may compile to.
pub const SCHEMA_PATTERN_BYTES: usize = 64 << 20;
