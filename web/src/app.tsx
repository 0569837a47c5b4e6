/** The frame of every page: navigation, and problems of the connection. */

import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { hasSignIn, isLost, loadSignIn, setToken, signIn, signInUrl, signOut, token, wantsToken } from "./api/connection";
import { useCaller, type Caller } from "./api/caller";
import { useCell } from "./api/cell";
import { useNeedyCount } from "./approvals/needy-count";
import { match, place } from "./router";
import { OverviewPage } from "./pages/overview";
import { RequestsPage } from "./pages/requests";
import { RequestPage } from "./pages/request";
import { SearchTrigger } from "./search/trigger";
import { Icon, type IconName } from "./ui/icons";
import { Empty, Loading } from "./ui/page";
import { Plain } from "./ui/plain";
import { setTheme, theme } from "./ui/theme";

const LINKS: readonly (readonly [string, string, IconName, RegExp])[] = [
  ["/", "Overview", "home", /^\/$/],
  ["/requests", "Requests", "list", /^\/(requests|executions|scheduled)/],
  ["/approvals", "Approvals", "person", /^\/approvals/],
  ["/new", "New plan", "plus", /^\/(new|plans)/],
  ["/saved", "Saved plans", "save", /^\/saved/],
  ["/tools", "Tools", "tools", /^\/tools/],
  ["/toolkit", "Tool graph", "graph", /^\/toolkit/],
  ["/nodes", "Nodes", "node", /^\/nodes/],
  ["/usage", "Usage", "chart", /^\/usage/],
];

const PAGES = LINKS.map(([to, name]) => [to, name] as const);

export function App() {
  const { path, isSame } = useCell(place);
  const wanted = useCell(wantsToken);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    // Moves the focus to the start of the new page. Otherwise keyboard users would continue after the link that they
    // followed.
    if (!isFirst.current && !isSame) main.current?.focus();
    isFirst.current = false;
  }, [path]);
  return (
    <div class="app">
      <a class="skip" href="#main">
        To the content
      </a>
      <Side path={path} />
      <main id="main" ref={main} tabIndex={-1}>
        <Lost />
        {wanted === null ? <Page path={path} /> : <TokenForm reason={wanted} />}
      </main>
    </div>
  );
}

function Page({ path }: { path: string }) {
  const request = match("/requests/:id", path);
  const execution = match("/executions/:id", path);
  const plan = match("/plans/:id", path);
  const saved = match("/saved/:name", path);
  const tool = match("/tools/:name", path);
  if (path === "/") return <OverviewPage />;
  if (match("/requests", path)) return <RequestsPage kind="requests" />;
  if (match("/executions", path)) return <RequestsPage kind="executions" />;
  if (request) return <RequestPage id={request.id!} />;
  if (execution) return <LazyPage load={executing} id={execution.id!} />;
  if (match("/approvals", path)) return <LazyPage load={approving} />;
  if (match("/scheduled", path)) return <LazyPage load={scheduling} />;
  if (match("/saved", path)) return <LazyPage load={saving} name={null} />;
  if (saved) return <LazyPage load={saving} name={saved.name!} />;
  if (match("/compare", path)) return <LazyPage load={comparing} />;
  if (match("/nodes", path)) return <LazyPage load={nodes} />;
  if (match("/usage", path)) return <LazyPage load={usage} />;
  if (match("/new", path)) return <LazyPage load={composing} from={null} />;
  if (plan) return <LazyPage load={composing} from={plan.id!} />;
  if (match("/tools", path)) return <LazyPage load={tools} name={null} />;
  if (tool) return <LazyPage load={tools} name={tool.name!} />;
  if (match("/toolkit", path)) return <LazyPage load={toolkit} />;
  return (
    <Empty isPage title="Nothing is here">
      <a href="/">To the overview</a>
    </Empty>
  );
}

const executing = () => import("./pages/execution").then((it) => it.ExecutionPage);
const approving = () => import("./pages/approvals").then((it) => it.ApprovalsPage);
const comparing = () => import("./pages/compare").then((it) => it.ComparePage);
const saving = () => import("./pages/saved").then((it) => it.SavedPage);
const scheduling = () => import("./pages/scheduled").then((it) => it.ScheduledPage);
const nodes = () => import("./pages/nodes").then((it) => it.NodesPage);
const usage = () => import("./pages/usage").then((it) => it.UsagePage);
const composing = () => import("./pages/compose").then((it) => it.ComposePage);
const tools = () => import("./pages/tools").then((it) => it.ToolsPage);
const toolkit = () => import("./pages/toolkit").then((it) => it.ToolkitPage);

const loaded = new Map<unknown, ComponentType<never>>();

/** A page whose code is loaded at the first visit. */
function LazyPage<P extends object>({ load, ...rest }: { load: () => Promise<ComponentType<P>> } & P) {
  const [, redraw] = useState({});
  const [error, setError] = useState<string | null>(null);
  const Found = loaded.get(load) as ComponentType<object> | undefined;
  useEffect(() => {
    if (Found) return;
    load().then(
      (it) => {
        loaded.set(load, it as unknown as ComponentType<never>);
        redraw({});
      },
      () => setError("This part of the page could not be loaded. The server may have been replaced: load the page again."),
    );
  }, [load, Found]);
  if (error) return <p class="problem" role="alert">{error}</p>;
  return Found ? <Found {...rest} /> : <Loading isPage />;
}

function Side({ path }: { path: string }) {
  const [dark, setDark] = useState(theme() === "dark");
  const user = useCell(signIn)?.caller ?? null;
  // Without a token, the server would refuse the query, and the page already asks for one.
  const isAllowed = useCell(wantsToken) === null;
  const who = useCaller();
  useEffect(() => {
    if (hasSignIn()) void loadSignIn();
  }, []);
  useEffect(() => {
    const look = () => setDark(theme() === "dark");
    addEventListener("faber:theme", look);
    return () => removeEventListener("faber:theme", look);
  }, []);
  return (
    <header class="side">
      <a class="brand" href="/" aria-label="Faber">
        <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="8" class="brand-ground" />
          <path d="M9 10h14M9 10v12M9 16h9" class="brand-line" />
          <circle cx="23" cy="10" r="2.6" class="brand-dot" />
          <circle cx="18.5" cy="16" r="2.6" class="brand-dot" />
        </svg>
        <span>Faber</span>
      </a>
      {isAllowed && <SearchTrigger pages={PAGES} />}
      <nav aria-label="Main">
        {LINKS.map(([to, name, icon, here]) => (
          <a key={to} href={to} {...(here.test(path) ? { "aria-current": "page" as const } : {})}>
            <Icon name={icon} />
            <span>{name}</span>
            {to === "/approvals" && isAllowed && <NeedyBadge />}
          </a>
        ))}
        <a href="/graphiql" data-outside>
          <Icon name="code" />
          <span>GraphiQL</span>
        </a>
      </nav>
      <div class="side-foot">
        {who && (who.name !== null || who.role !== "ADMIN") && <WhoIsIt caller={who} />}
        {user && (
          <button type="button" class="ghost" aria-label="Sign out" title={user} onClick={() => void signOut()}>
            <Icon name="key" />
            <span>Sign out</span>
          </button>
        )}
        {token() && (
          <button type="button" class="ghost" aria-label="Sign out" onClick={() => setToken(null)}>
            <Icon name="key" />
            <span>Sign out</span>
          </button>
        )}
        <button
          type="button"
          class="ghost"
          aria-label={dark ? "Light colours" : "Dark colours"}
          onClick={() => setTheme(dark ? "light" : "dark")}
        >
          <Icon name={dark ? "sun" : "moon"} />
          <span>{dark ? "Light" : "Dark"}</span>
        </button>
      </div>
    </header>
  );
}

const ROLE_ABOUT: Record<Caller["role"], string> = {
  VIEWER: "You can see everything, and change nothing.",
  OPERATOR: "You can plan, execute and control executions. Some changes need an admin.",
  ADMIN: "You can change everything.",
};

function WhoIsIt({ caller }: { caller: Caller }) {
  return (
    <p class="who" title={ROLE_ABOUT[caller.role]}>
      {caller.name !== null && (
        <strong class="cut">
          <Plain text={caller.name} />
        </strong>
      )}
      <span class="tag">{caller.role.toLowerCase()}</span>
      <span class="unseen">{ROLE_ABOUT[caller.role]}</span>
    </p>
  );
}

function NeedyBadge() {
  const count = useNeedyCount();
  if (count === 0) return null;
  return (
    <span class="count needy-count">
      <span>{count.toLocaleString("en")}</span>
      <span class="unseen"> wait for a person</span>
    </span>
  );
}

function Lost() {
  const lost = useCell(isLost);
  return (
    <div role="status" class="lost-room">
      {lost && (
        <p class="lost">
          <span class="spinner" aria-hidden="true" />
          Connection lost – reconnecting
        </p>
      )}
    </div>
  );
}

function TokenForm({ reason }: { reason: string }) {
  const [text, setText] = useState("");
  const canSignIn = useCell(signIn)?.canSignIn ?? false;
  const submit = (event: Event) => {
    event.preventDefault();
    setToken(text.trim());
  };
  return (
    <form class="token-form" onSubmit={submit}>
      {canSignIn && (
        <>
          <h1>Sign in</h1>
          <a class="button primary" href={signInUrl()} data-outside>
            Sign in
          </a>
        </>
      )}
      <h1>{canSignIn ? "Or use an access token" : "Sign in"}</h1>
      <p>{reason} It is kept in this tab only, until the tab is closed.</p>
      <label class="field">
        <span>Access token</span>
        <input type="password" autocomplete="off" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit" class="primary">
        Sign in
      </button>
    </form>
  );
}
