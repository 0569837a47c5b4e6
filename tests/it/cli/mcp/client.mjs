// Drives the official MCP client: `node client.mjs MODULES` reads one JSON document in each line of standard input.
//
// The first line names the server: `{"command", "args", "env", "cwd"}` or `{"url", "token"}`. With `newest`, the script uses
// the client for the newest protocol. Each further line is an instruction: `{"do": "tools"}` lists the tools, and
// `{"do": "call", "name", "arguments", "leave"}` calls one. With `leave`, the client cancels the call at the first progress
// report. The script answers each line with one line.
import { createInterface } from "node:readline";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const load = (path) => import(pathToFileURL(join(process.argv[2], "@modelcontextprotocol", path)));
const sdk = async ({ newest }) =>
  newest
    ? { ...(await load("client/dist/index.mjs")), ...(await load("client/dist/stdio.mjs")) }
    : {
        ...(await load("sdk/dist/esm/client/index.js")),
        ...(await load("sdk/dist/esm/client/stdio.js")),
        ...(await load("sdk/dist/esm/client/streamableHttp.js")),
      };

let client;
let isNewest = false;
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const refused = (error) => ({ refused: { code: error.code, message: error.message } });

const connect = async (where) => {
  const { Client, StdioClientTransport, StreamableHTTPClientTransport } = await sdk(where);
  isNewest = where.newest === true;
  const options = isNewest ? { versionNegotiation: { mode: "auto" } } : {};
  client = new Client({ name: "tests", version: "1" }, options);
  const headers = where.token ? { Authorization: `Bearer ${where.token}` } : {};
  const transport = where.url
    ? new StreamableHTTPClientTransport(new URL(where.url), { requestInit: { headers } })
    : new StdioClientTransport({ ...where, stderr: "inherit" });
  await client.connect(transport);
  return {
    server: client.getServerVersion(),
    instructions: client.getInstructions(),
    protocol: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
  };
};

const call = async ({ name, arguments: given, leave }) => {
  const reports = [];
  const leaving = new AbortController();
  const onprogress = (report) => {
    reports.push(report);
    if (leave) leaving.abort("enough");
  };
  try {
    const options = { onprogress, signal: leaving.signal, timeout: 280_000, resetTimeoutOnProgress: true };
    const rest = isNewest ? [options] : [undefined, options];
    return { result: await client.callTool({ name, arguments: given }, ...rest), reports };
  } catch (error) {
    return { ...refused(error), reports };
  }
};

let isConnected = false;
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    if (!isConnected) say(await connect(asked));
    else if (asked.do === "tools") say(await client.listTools());
    else say(await call(asked));
    isConnected = true;
  } catch (error) {
    say(refused(error));
  }
}
await client?.close();
