/** Everything that was asked for, the newest first, as it happens. */

import { useEffect, useState } from "preact/hooks";

import { ask, useAsk } from "../api/client";
import { Executions, Requests, type ExecutionState, type RequestFilter, type RequestRow, type RunRow } from "../api/generated";
import { go, setParams, useParam } from "../router";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Empty, Loading, useTitle } from "../ui/page";
import { Dot, Meter, OVER, WORD } from "../ui/state";
import { ago, moment, serverNow, took, useNow } from "../ui/time";
import { Virtual } from "../ui/virtual";

/** How many rows come at once, and how often the first of them are asked for again. */
const PART = 50;
const EVERY = 1_500;
const ROW = 52;

const STATES: readonly (readonly [string, string])[] = [
  ["", "Any state"],
  ...(["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED"] as const).map(
    (it) => [it, WORD[it]] as const,
  ),
];
const SINCE: readonly (readonly [string, string])[] = [
  ["", "Any time"],
  ["1h", "Last hour"],
  ["24h", "Last day"],
  ["7d", "Last week"],
  ["30d", "Last month"],
];
const HOURS: Record<string, number> = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };

/** The moment that a span of time began, to the minute, so that the question stays the same for a while. */
function since(span: string): string | undefined {
  const hours = HOURS[span];
  if (!hours) return undefined;
  const minute = Math.floor(serverNow() / 60_000) - hours * 60;
  return new Date(minute * 60_000).toISOString();
}

interface Row {
  key: string;
  href: string;
  text: string;
  id: string;
  createdAt: string;
  run: RunRow | null;
}

function requestRow(it: RequestRow): Row {
  const run = it.executions.at(-1) ?? null;
  return { key: it.requestId, href: `/requests/${it.requestId}`, text: it.query, id: it.requestId, createdAt: it.createdAt, run };
}

export function RequestsPage({ kind }: { kind: "requests" | "executions" }) {
  useTitle(kind === "requests" ? "Requests" : "Executions");
  const [search, setSearch] = useParam("search");
  const [state, setState] = useParam("state");
  const [tool] = useParam("tool");
  const [span, setSpan] = useParam("since");
  return (
    <div class="page list-page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>{kind === "requests" ? "Requests" : "Executions"}</h1>
          <a class="button primary" href="/new">
            <Icon name="plus" />
            New plan
          </a>
        </div>
        <div class="filters">
          <div class="switch" role="group" aria-label="What is listed">
            <button type="button" aria-pressed={kind === "requests"} onClick={() => go("/")}>
              Requests
            </button>
            <button type="button" aria-pressed={kind === "executions"} onClick={() => go("/executions")}>
              Executions
            </button>
          </div>
          {kind === "requests" ? (
            <SearchBox label="Search requests" value={search} onSearch={setSearch} placeholder="Words of the query" />
          ) : (
            <SearchBox label="Tool" value={tool} onSearch={(it) => setParams({ tool: it })} placeholder="A tool that the plan uses" />
          )}
          <Choice label="State" value={state} options={STATES} onChange={setState} />
          <Choice label="Since" value={span} options={SINCE} onChange={setSpan} />
        </div>
      </header>
      {kind === "requests" ? <RequestList search={search} state={state} span={span} /> : <ExecutionList tool={tool} state={state} span={span} />}
    </div>
  );
}

/** Text that is asked for once the typing rests. */
export function SearchBox({ label, value, onSearch, placeholder }: { label: string; value: string; onSearch: (it: string) => void; placeholder: string }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onSearch(text), 180);
    return () => clearTimeout(timer);
  }, [text, value]);
  return (
    <label class="search">
      <Icon name="search" />
      <span class="unseen">{label}</span>
      <input type="search" value={text} placeholder={placeholder} onInput={(event) => setText(event.currentTarget.value)} />
    </label>
  );
}

function RequestList({ search, state, span }: { search: string; state: string; span: string }) {
  const filter: RequestFilter = { search: search || null, state: (state || null) as ExecutionState | null, from: since(span) ?? null };
  const asked = useAsk(Requests, { filter, first: PART }, EVERY);
  const part = asked.data?.requests;
  const older = useOlder(JSON.stringify(filter), async (after) => {
    const { requests } = await ask(Requests, { filter, first: 200, after });
    return { rows: requests.nodes.map(requestRow), pageInfo: requests.pageInfo };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!part) return <Loading />;
  const isFiltered = search !== "" || state !== "" || span !== "";
  return <Rows label="Requests" first={part.nodes.map(requestRow)} pageInfo={part.pageInfo} older={older} isFiltered={isFiltered} />;
}

function ExecutionList({ tool, state, span }: { tool: string; state: string; span: string }) {
  const states = state ? [state as ExecutionState] : null;
  const filter = { toolName: tool || null, state: states, from: since(span) ?? null };
  const asked = useAsk(Executions, { filter, first: PART }, EVERY);
  const part = asked.data?.executions;
  const row = (it: RunRow & { request: { query: string } | null }): Row => ({
    key: it.executionId,
    href: `/executions/${it.executionId}`,
    text: it.request?.query ?? it.executionId,
    id: it.executionId,
    createdAt: it.createdAt,
    run: it,
  });
  const older = useOlder(JSON.stringify(filter), async (after) => {
    const { executions } = await ask(Executions, { filter, first: 200, after });
    return { rows: executions.nodes.map(row), pageInfo: executions.pageInfo };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!part) return <Loading />;
  const isFiltered = tool !== "" || state !== "" || span !== "";
  return <Rows label="Executions" first={part.nodes.map(row)} pageInfo={part.pageInfo} older={older} isFiltered={isFiltered} />;
}

interface PageInfo {
  hasNextPage: boolean;
  endCursor: string | null;
}

interface Older {
  rows: Row[];
  next: PageInfo | null;
  isLoading: boolean;
  load: (after: string) => void;
}

/** What was asked for behind the first rows. */
function useOlder(key: string, ask: (after: string) => Promise<{ rows: Row[]; pageInfo: PageInfo }>): Older {
  const [known, setKnown] = useState<{ key: string; rows: Row[]; next: PageInfo | null }>({ key, rows: [], next: null });
  const [isLoading, setLoading] = useState(false);
  const now = known.key === key ? known : { key, rows: [], next: null };
  const load = async (after: string) => {
    setLoading(true);
    try {
      const { rows, pageInfo } = await ask(after);
      setKnown((old) => ({ key, rows: [...(old.key === key ? old.rows : []), ...rows], next: pageInfo }));
    } finally {
      setLoading(false);
    }
  };
  return { rows: now.rows, next: now.next, isLoading, load };
}

interface RowsProps {
  label: string;
  first: Row[];
  pageInfo: PageInfo;
  older: Older;
  isFiltered: boolean;
}

function Rows({ label, first, pageInfo, older, isFiltered }: RowsProps) {
  const known = new Set(first.map((it) => it.key));
  const rows = [...first, ...older.rows.filter((it) => !known.has(it.key))];
  const next = older.next ?? pageInfo;
  const now = useNow(1_000);
  if (rows.length === 0) {
    return isFiltered ? (
      <Empty title="Nothing fits">
        <button type="button" class="link" onClick={() => setParams({ search: "", state: "", since: "", tool: "" })}>
          Leave the filters out
        </button>
      </Empty>
    ) : (
      <Empty title="Nothing has been asked for yet">
        <p>
          <a href="/new">Make a plan</a>, or on the command line:
        </p>
        <pre class="code">faber run "Create author Alice with email alice@test.com"</pre>
      </Empty>
    );
  }
  return (
    <div class="list">
      <div class="list-head" aria-hidden="true">
        <span />
        <span>Query</span>
        <span>Steps</span>
        <span class="right">Took</span>
        <span class="right">Asked for</span>
      </div>
      <Virtual items={rows} rowHeight={ROW} label={label} row={(it) => <RequestLine key={it.key} row={it} now={now} />} />
      <p class="list-foot faint">
        {rows.length} shown
        {next.hasNextPage && next.endCursor && (
          <button type="button" class="link" disabled={older.isLoading} onClick={() => older.load(next.endCursor!)}>
            Show older ones
          </button>
        )}
      </p>
    </div>
  );
}

function RequestLine({ row, now }: { row: Row; now: number }) {
  const { run } = row;
  const isRunning = run !== null && !OVER.has(run.state);
  return (
    <div role="listitem" class="list-row" data-id={row.id} data-state={run?.state ?? ""}>
      <a class="row-link" href={row.href}>
        <span class="row-state">
          {run ? <Dot state={run.state} /> : <Dot state="PENDING" />}
          <span class="unseen">{run ? WORD[run.state] : "Not executed"}</span>
        </span>
        <span class="row-text">
          <span class="cut">{row.text}</span>
          <span class="row-id mono faint">
            {row.id}
            {run && <span class="row-word"> · {WORD[run.state]}</span>}
          </span>
        </span>
        <span class="row-meter">{run ? <Meter {...run} /> : <span class="faint">plan only</span>}</span>
        <span class="row-time right">{run && took(run.startedAt, isRunning ? null : run.finishedAt, now)}</span>
        <span class="row-age right faint" title={moment(row.createdAt)}>
          {ago(row.createdAt, now)}
        </span>
      </a>
    </div>
  );
}
