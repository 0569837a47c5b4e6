/** Everything that was asked for, the newest first, as it happens. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ask, useAsk } from "../api/client";
import { Executions, Requests, type ExecutionState, type RequestFilter, type RequestRow, type RunRow } from "../api/generated";
import { print } from "../api/json";
import { go, setParams, useParam } from "../router";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Empty, Loading, useTitle } from "../ui/page";
import { Dot, Meter, OVER, WORD } from "../ui/state";
import { ago, moment, serverNow, took, useNow } from "../ui/time";
import { Plain } from "../ui/plain";
import { Virtual } from "../ui/virtual";
import { useListing, type Entry } from "./listing";

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

/** The moment that a span of time began. */
function since(span: string): string | undefined {
  const hours = HOURS[span];
  return hours ? new Date(serverNow() - hours * 3_600_000).toISOString() : undefined;
}

interface Row extends Entry {
  href: string;
  text: string;
  id: string;
  run: RunRow | null;
}

function requestRow({ cursor, node }: { cursor: string; node: RequestRow }): Row {
  const run = node.executions.at(-1) ?? null;
  const isOpen = run !== null && !OVER.has(run.state);
  return { key: node.requestId, cursor, href: `/requests/${node.requestId}`, text: node.query, id: node.requestId, createdAt: node.createdAt, run, isOpen };
}

function runRow({ cursor, node }: { cursor: string; node: RunRow & { request: { query: string } | null } }): Row {
  const text = node.request?.query ?? node.executionId;
  return { key: node.executionId, cursor, href: `/executions/${node.executionId}`, text, id: node.executionId, createdAt: node.createdAt, run: node, isOpen: !OVER.has(node.state) };
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
  // It begins when it is chosen: a list whose beginning moves would begin anew each time.
  const from = useMemo(() => since(span) ?? null, [span]);
  const filter: RequestFilter = { search: search || null, state: (state || null) as ExecutionState | null, from };
  const asked = useAsk(Requests, { filter, first: PART }, EVERY);
  const part = asked.data?.requests;
  const first = useMemo(() => part && { rows: part.edges.map(requestRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const list = useListing(print(filter), asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { requests } = await ask(Requests, { filter, first: count, after });
    return { rows: requests.edges.map(requestRow), hasMore: requests.pageInfo.hasNextPage };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!part || !asked.isCurrent) return <Loading />;
  return <Rows label="Requests" {...list} isFiltered={search !== "" || state !== "" || span !== ""} />;
}

function ExecutionList({ tool, state, span }: { tool: string; state: string; span: string }) {
  const from = useMemo(() => since(span) ?? null, [span]);
  const filter = { toolName: tool || null, state: state ? [state as ExecutionState] : null, from };
  const asked = useAsk(Executions, { filter, first: PART }, EVERY);
  const part = asked.data?.executions;
  const first = useMemo(() => part && { rows: part.edges.map(runRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const list = useListing(print(filter), asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { executions } = await ask(Executions, { filter, first: count, after });
    return { rows: executions.edges.map(runRow), hasMore: executions.pageInfo.hasNextPage };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!part || !asked.isCurrent) return <Loading />;
  return <Rows label="Executions" {...list} isFiltered={tool !== "" || state !== "" || span !== ""} />;
}

interface RowsProps {
  label: string;
  rows: Row[];
  hasMore: boolean;
  isLoading: boolean;
  more: () => void;
  isFiltered: boolean;
}

function Rows({ label, rows, hasMore, isLoading, more, isFiltered }: RowsProps) {
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
        {rows.length.toLocaleString("en")} shown
        {hasMore && (
          <button type="button" class="link" disabled={isLoading} onClick={more}>
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
          <span class="cut">
            <Plain text={row.text} />
          </span>
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
