// An MCP server that requires OAuth, and its authorization server, both made with the official SDK:
// `node guarded.mjs NODE_MODULES`.
//
// It prints its URL first. It answers each line of standard input with its records so far. `lasts SECONDS` sets the lifetime
// of new tokens, `end access` and `end all` make tokens invalid, `forget clients` removes all clients, and `tell` changes
// nothing.
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const modules = process.argv[2];
const load = (path) => import(pathToFileURL(join(modules, path)));
const sdk = (path) => load(join("@modelcontextprotocol/sdk/dist/esm", path));
const express = (await load("express/index.js")).default;
const { mcpAuthRouter, getOAuthProtectedResourceMetadataUrl } = await sdk("server/auth/router.js");
const { requireBearerAuth } = await sdk("server/auth/middleware/bearerAuth.js");
const { InvalidGrantError, InvalidTokenError } = await sdk("server/auth/errors.js");
const { Server } = await sdk("server/index.js");
const { StreamableHTTPServerTransport } = await sdk("server/streamableHttp.js");
const { CallToolRequestSchema, ListToolsRequestSchema } = await sdk("types.js");

const clients = new Map();
const codes = new Map();
const access = new Map();
const refresh = new Map();
const told = { logins: 0, refreshed: 0, revoked: 0, states: [], scopes: [], resources: [], secrets: [] };
let lasts = 3600;

function grant(client, scopes, resource) {
  const [token, again] = [`access-${randomUUID()}`, `refresh-${randomUUID()}`];
  told.secrets.push(token, again);
  told.resources.push(resource?.href);
  access.set(token, { token, clientId: client.client_id, scopes, expiresAt: Math.floor(Date.now() / 1000) + 3600 });
  refresh.set(again, scopes);
  return { access_token: token, token_type: "bearer", expires_in: lasts, refresh_token: again, scope: scopes.join(" ") };
}

const provider = {
  clientsStore: {
    getClient: (id) => clients.get(id),
    registerClient: (client) => (clients.set(client.client_id, client), client),
  },
  async authorize(client, params, response) {
    const code = `code-${randomUUID()}`;
    codes.set(code, params);
    told.secrets.push(code);
    told.logins++;
    told.states.push(params.state);
    told.scopes.push(params.scopes);
    const back = new URL(params.redirectUri);
    back.search = new URLSearchParams({ code, state: params.state });
    response.redirect(back.href);
  },
  challengeForAuthorizationCode: async (_, code) => codes.get(code).codeChallenge,
  async exchangeAuthorizationCode(client, code, _verifier, _redirect, resource) {
    const params = codes.get(code);
    codes.delete(code);
    return grant(client, params.scopes?.length ? params.scopes : ["read"], resource);
  },
  async exchangeRefreshToken(client, token, _scopes, resource) {
    const scopes = refresh.get(token);
    if (!scopes) throw new InvalidGrantError("nobody was granted this");
    refresh.delete(token);
    told.refreshed++;
    return grant(client, scopes, resource);
  },
  async verifyAccessToken(token) {
    const known = access.get(token);
    if (!known) throw new InvalidTokenError("nobody was granted this");
    return known;
  },
  async revokeToken(_, { token }) {
    told.revoked += refresh.delete(token) ? 1 : 0;
  },
};

const tool = (name, annotations) => ({ name, annotations, inputSchema: { type: "object" } });
function serve() {
  const server = new Server({ name: "guarded", version: "1" }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [tool("whoami", { readOnlyHint: true }), tool("change", {})],
  }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { authInfo }) => ({
    content: [{ type: "text", text: `${params.name} with ${authInfo.token}` }],
  }));
  return server;
}

const app = express();
const listener = app.listen(0, "127.0.0.1", () => {
  const origin = new URL(`http://127.0.0.1:${listener.address().port}`);
  const url = new URL("/mcp", origin);
  const metadata = getOAuthProtectedResourceMetadataUrl(url);
  app.use(mcpAuthRouter({ provider, issuerUrl: origin, resourceServerUrl: url, scopesSupported: ["read"] }));
  const guard = (requiredScopes) =>
    requireBearerAuth({ verifier: provider, requiredScopes, resourceMetadataUrl: metadata });
  const isChange = (request) => request.body?.method === "tools/call" && request.body.params.name === "change";
  app.use(express.json());
  app.use("/mcp", (...all) => guard(isChange(all[0]) ? ["read", "write"] : ["read"])(...all));
  app.post("/mcp", async (request, response) => {
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    await serve().connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  console.log(url.href);
});

createInterface({ input: process.stdin }).on("line", (line) => {
  const [word, what] = line.split(" ");
  if (word === "lasts") lasts = Number(what);
  if (word === "end") access.clear();
  if (line === "end all") refresh.clear();
  if (line === "forget clients") clients.clear();
  console.log(JSON.stringify(told));
});
