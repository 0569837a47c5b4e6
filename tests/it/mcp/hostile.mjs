// An MCP server that misbehaves: `node hostile.mjs MODE RECORD`.
//
// It appends a line to the file RECORD at each start, and when it ends because its input closed.
import { createHash } from "node:crypto";
import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [mode, record] = process.argv.slice(2);
appendFileSync(record, `start ${process.pid}\n`);
const starts = () => readFileSync(record, "utf8").split("\n").filter((it) => it.startsWith("start")).length;
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const answer = (id, value) => send({ id, result: { content: [{ type: "text", text: JSON.stringify(value) }] } });

const read = { readOnlyHint: true };
const offer = (name, annotations) => ({ name, annotations, inputSchema: { type: "object" } });
const offers = [
  offer("hang", read), offer("cancelled", read), offer("die", read), offer("die_first", read),
  offer("die_idempotent", { idempotentHint: true }), offer("die_once"), offer("quit", read), offer("starts", read),
  offer("huge", read), offer("garbage", read), offer("not_mcp", read), offer("meta", read), offer("grow", read),
  offer("rpc_error", read), offer("", read), offer("report", read), offer("flood", read), offer("forge", read),
  offer("half_once"), offer("strange"), { name: "open_ended", inputSchema: true }, offer("torrent", read), offer("picture", read), offer("measure", read),
  { ...offer("promise"), outputSchema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } },
];
const cancelled = [];
let waiting;
const tellCancelled = () => {
  if (waiting !== undefined && cancelled.length > 0) answer(waiting, cancelled.length);
};

const progress = (progressToken, progress, more) =>
  send({ method: "notifications/progress", params: { progressToken, progress, ...more } });

// Reports progress `times` times, every `every` milliseconds. Then answers the call, or hangs.
function report(id, { every, times, hang }, { _meta }) {
  let done = 0;
  const timer = setInterval(() => {
    progress(_meta.progressToken, ++done, { total: times, message: `${done} of ${times}` });
    if (done < times) return;
    clearInterval(timer);
    if (!hang) answer(id, done);
  }, every);
}

// Reports progress as fast as the pipe accepts it, `times` times or until the call is cancelled.
function flood(id, { times }, { _meta }, done = 0) {
  while (done < times && !cancelled.includes(id)) {
    progress(_meta.progressToken, ++done, { message: "x".repeat(1000) });
    if (done % 100 === 0) {
      return process.stdout.writableNeedDrain
        ? process.stdout.once("drain", () => flood(id, { times }, { _meta }, done))
        : setImmediate(() => flood(id, { times }, { _meta }, done));
    }
  }
  answer(id, done);
}

// Sends reports with tokens of other calls and invalid reports. The last report is valid and has the token of this call.
function forge(id, { tokens }, { _meta }) {
  tokens.forEach((it) => progress(it, 13));
  const own = _meta.progressToken;
  progress(own, "many");
  progress(own, undefined);
  send({ method: "notifications/progress" });
  send({ method: "notifications/progress", params: [own] });
  process.stdout.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${own},"progress":1e999}}\n`);
  progress(own, 1, { total: "lots" });
  progress(own, 7, { message: "own" });
  answer(id, own);
}

const calls = {
  report, flood, forge,
  hang: () => {},
  cancelled: (id) => { waiting = id; tellCancelled(); },
  die: () => process.exit(7),
  die_once: () => process.exit(7),
  die_idempotent: () => process.exit(7),
  die_first: (id) => (starts() === 1 ? process.exit(7) : answer(id, "alive")),
  half_once: (id) => process.stdout.write(`{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"te`, () => process.exit(7)),
  torrent: (id) => process.stdout.write("x".repeat(50 << 20) + "\n", () => answer(id, "still here")),
  picture: (id, { bytes }) => {
    const data = Buffer.alloc(bytes, 7).toString("base64");
    send({ id, result: { content: [{ type: "image", mimeType: "image/png", data }] } });
  },
  measure: (id, { data }) => {
    const bytes = Buffer.from(data, "base64");
    answer(id, { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") });
  },
  quit: (id) => { answer(id, "bye"); setTimeout(() => process.exit(0), 1); },
  starts: (id) => answer(id, starts()),
  huge: (id, { bytes }) => answer(id, "x".repeat(bytes)),
  garbage: (id) => {
    process.stdout.write("Listening on…\n\n{\n[1,\n\u0000\u0001\n{\"id\":77,\"result\":{\"content\":[]}}\n");
    process.stderr.write("noise\n".repeat(1000));
    answer(id, "still here");
  },
  strange: (id) => send({ id, result: { content: [{ type: "text", text: "7" }, { type: "hologram", depth: 3 }] } }),
  not_mcp: (id) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result: 5 }) + "\n"),
  meta: (id, _, params) => answer(id, params._meta),
  grow: (id) => {
    offers.push(offer("grown", read));
    send({ method: "notifications/tools/list_changed" });
    answer(id, null);
  },
  promise: (id, { n }) => send({ id, result: { content: [], structuredContent: { n } } }),
  rpc_error: (id, { code, message }) => send({ id, error: { code, message } }),
};

// Lists the tools in pages of three. In the mode `circle`, every page leads to a next page.
function list(id, cursor) {
  if (mode === "circle") return send({ id, result: { tools: [], nextCursor: "again" } });
  const start = Number(cursor ?? 0);
  const nextCursor = start + 3 < offers.length ? String(start + 3) : undefined;
  send({ id, result: { tools: offers.slice(start, start + 3), nextCursor } });
}

function greet(id, { protocolVersion }) {
  if (mode === "torrent") return send({ id, result: { protocolVersion, instructions: "x".repeat(50 << 20) } });
  if (mode === "rubbish") return process.stdout.write("Hello!\n{]\n" + JSON.stringify({ id, result: "hello" }) + "\n");
  if (mode === "refusal") return send({ id, error: { code: -32600, message: "not today" } });
  if (mode === "stranger") return send({ id, result: {} });
  const result = {
    protocolVersion,
    capabilities: mode === "odd" ? [] : { tools: { listChanged: true } },
    serverInfo: { name: "hostile", version: "1" },
  };
  setTimeout(() => send({ id, result }), mode === "slow" ? 500 : 0);
}

if (mode === "broken") {
  console.error("Error: cannot find the moon");
  process.exit(3);
}
if (mode === "deaf") {
  setInterval(() => {}, 1000);
} else {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, method, params } = JSON.parse(line);
    if (mode === "mute") return;
    if (method === "initialize") greet(id, params);
    else if (method === "tools/list") list(id, params?.cursor);
    else if (method === "tools/call") calls[params.name](id, params.arguments, params);
    else if (method === "notifications/cancelled") { cancelled.push(params.requestId); tellCancelled(); }
  }).on("close", () => {
    appendFileSync(record, "end\n");
    process.exit(0);
  });
}
