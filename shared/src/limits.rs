//! The most of everything, each with its reason.

use std::time::Duration;

/// Bytes of JSON a plan may have: above it a draft is a mistake or an attack.
pub const PLAN_BYTES: usize = 256 << 20;
/// Steps in a plan: four times what the benchmark compiles.
pub const PLAN_STEPS: usize = 400_000;
/// How deep the parameters of a step may nest: events wrap them in a few levels more, and
/// `serde_json` reads 127.
pub const JSON_DEPTH: usize = 96;
/// How deep a record may nest: it wraps such values, too.
pub const RECORD_DEPTH: usize = JSON_DEPTH + 8;
/// Bytes of one tool's output; larger ones belong into a file that the output names.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of base 64 that stand in an output themselves; more is kept beside the log. A small icon
/// still fits.
pub const INLINE_BINARY: usize = 64 << 10;
/// Bytes of base 64 that one call is given in the places of references: they are in memory.
pub const RESTORED_BYTES: usize = 64 << 20;
/// The most bytes of the parameters of one call, however they came to be: they are one event.
pub const PARAMETER_BYTES: usize = 8 << 20;
/// Bytes of a query in words.
pub const QUERY_BYTES: usize = 64 << 10;
/// Bytes of an idempotency key, a signal's name, a comment or a reason.
pub const TEXT_BYTES: usize = 4 << 10;
/// Bytes of events in one document of a store: `MongoDB` refuses documents above 16 MB.
pub const APPEND_BYTES: usize = 8 << 20;
/// Bytes of one document, which is one event where it is larger than [`APPEND_BYTES`]: `MongoDB`
/// refuses documents of 16 MiB, and what is written for one store another can write, too.
pub const DOCUMENT_BYTES: usize = 15 << 20;
/// Events that one read of a log returns.
pub const READ_EVENTS: usize = 4_096;
/// The most bytes of error text that an event keeps: the tail says why, the head who.
pub const MESSAGE_BYTES: usize = 8 << 10;
/// The most bytes of a progress report's message: there are many, and one line says enough.
pub const PROGRESS_BYTES: usize = 512;
/// How often a call may report its progress; of closer reports only the newest is kept. People
/// do not read faster, and each is an event.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// Reports of one attempt that are recorded as they come; then only one every
/// [`PROGRESS_SELDOM`], so that a log does not grow with the patience of its readers.
pub const PROGRESS_EVENTS: u32 = 600;
/// How often the reports of a long attempt are recorded.
pub const PROGRESS_SELDOM: Duration = Duration::from_secs(30);
/// Attempts a step may have, whatever its policy says.
pub const ATTEMPTS: u32 = 1_000;
/// Times a step may take its worker down before it is given up.
pub const INTERRUPTIONS: u32 = 100;
/// Steps that run at once where `maxParallel` says nothing.
pub const MAX_PARALLEL: u32 = 256;
/// Times in a row that an execution may be planned anew by itself.
pub const REPLANS: u32 = 16;
/// The same, of one that asks for it in its plan and whose start said nothing.
pub const REPLANS_ASKED: u32 = 4;
/// Times that planning one execution anew may be begun, and come to nothing that is known.
pub const REPLAN_TRIES: usize = 5;
/// How long an attempt may take where the plan says nothing.
pub const STEP_TIMEOUT: Duration = Duration::from_mins(5);
/// How long running tools have, once told to stop.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long a worker may be silent before others take its executions.
pub const LEASE: Duration = Duration::from_secs(5);
/// How often a waiting reader looks again when nobody woke it.
pub const POLL: Duration = Duration::from_millis(250);
/// Executions that one worker drives at once.
pub const EXECUTIONS: usize = 4_096;
/// An execution that only waits, and for longer than this, leaves the memory.
pub const PARK_AFTER: Duration = Duration::from_secs(2);
/// Items of a list that one step is done for: each is a line in the log.
pub const ITEMS: usize = 100_000;
/// Executions that may be above an execution: a plan cannot contain itself, but many can be
/// stacked.
pub const DEPTH: u32 = 16;
/// Signals that wait for a step, in one execution.
pub const SIGNALS: usize = 1_000;
/// Bytes of the outputs that an execution takes over from the one that it does again.
pub const REUSED_BYTES: usize = 8 << 20;
/// Commands that wait for one execution: who sends more does not wait for answers.
pub const INBOX: usize = 1_000;
/// Commands of all executions that one look returns: it is done again and again.
pub const INBOX_LOOK: usize = 4_096;
/// About how many bytes of commands of all executions one look returns.
pub const INBOX_BYTES: usize = 16 << 20;
/// Outputs that are kept for later calls with the same parameters, in one store.
pub const CACHE_ENTRIES: usize = 100_000;
/// Bytes of a record's name: keys of indexes stay small.
pub const NAME_BYTES: usize = 512;
/// Calls outside plans that are remembered, in one store.
pub const CALL_HISTORY: usize = 10_000;
/// Calls at the same time that one limit can count: their holders are in one document.
pub const HOLDERS: u32 = 10_000;
/// Bytes of a condition: what a person can still read.
pub const CONDITION_BYTES: usize = 4 << 10;
/// How deep the brackets of a condition may nest: its parser recurses some ten calls a level.
pub const CONDITION_DEPTH: usize = 24;
/// Operators, dots and brackets in a condition, `&&` and `||` aside: a chain of them nests in the
/// parser's tree.
pub const CONDITION_OPERATORS: usize = 128;
/// Operations that telling whether a condition holds may take, a few dozen milliseconds: enough
/// for ten looks at each of 10,000 items, too few for loops within loops over large lists.
pub const CONDITION_WORK: usize = 1_000_000;
/// Bytes that a pattern in a condition may compile to: the time to match grows with it.
pub const CONDITION_PATTERN_BYTES: usize = 256 << 10;
/// Toolsets that are added to those of the configuration: every node connects to each.
pub const TOOL_SETS: usize = 1_000;
/// Tools that are registered one by one.
pub const REGISTERED_TOOLS: usize = 100_000;
/// Contexts, whose data conditions of toolsets ask for.
pub const CONTEXTS: usize = 1_000;
/// Bytes of a model's reply that is read for tool calls: four times the longest that models write.
pub const REPLY_BYTES: usize = 4 << 20;
/// Tool calls in one reply: a model that writes more repeats itself, or something else wrote them.
pub const REPLY_CALLS: usize = 256;
/// Priorities that a look for work goes through: each is a look into an index. Behind them what is
/// due comes by its time.
pub const PRIORITIES: usize = 32;
/// Different words that a search may have: each is looked for in every query.
pub const SEARCH_WORDS: usize = 64;
/// About how many bytes of events, or of what executions were given and returned, one field of an
/// answer brings together: it is in memory several times while it is written.
pub const ANSWER_BYTES: usize = 32 << 20;
/// What compiling the largest pattern costs, in operations of a condition.
pub const PATTERN_COST: usize = 8_000;
/// What compiling the patterns of all conditions of a plan may cost, a small one a thousand and a
/// large one eight: seconds, not minutes, also where each is as large as it may be.
pub const PLAN_PATTERNS: usize = 16_000_000;
/// Actions and tools in the toolkit graph: above it nobody finds anything in it.
pub const TOOLKIT_NODES: usize = 10_000;
/// Edges in the toolkit graph.
pub const TOOLKIT_EDGES: usize = 50_000;
/// Actions and tools that one drawing shows: above it a picture says nothing.
pub const DRAWN_NODES: usize = 4_000;
/// Edges that one drawing shows.
pub const DRAWN_EDGES: usize = 20_000;
/// Numbers of a text's vector: the largest models make half as many.
pub const VECTOR_LEN: usize = 8_192;
/// Bytes of a JSON Schema: no model reads more of one tool.
pub const SCHEMA_BYTES: usize = 1 << 20;
/// How deep a JSON Schema may nest: `serde_json` reads 127.
pub const SCHEMA_DEPTH: usize = 128;
/// Evaluations of schemas for one value, apart from its parts: unions of hundreds of types stay far
/// below.
pub const SCHEMA_EXPANSION: u64 = 20_000;
/// Schemas that refer to each other in a row and hold for the same value: each takes some of the
/// stack.
pub const SCHEMA_CHAIN: usize = 128;
/// Bytes that the patterns of one JSON Schema may compile to together.
pub const SCHEMA_PATTERN_BYTES: usize = 64 << 20;
