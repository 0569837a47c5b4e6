/** The lists of requests and executions, newest first. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { ask, useAsk } from "../api/client";
import { Executions, NeedPerson, Requests, type ExecutionState, type RequestFilter, type RequestRow } from "../api/generated";
import { print } from "../api/json";
import { go, setParams, useParam } from "../router";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Empty, Loading, useTitle } from "../ui/page";
import { placeOf } from "../ui/words";
import { OVER, WORD } from "../ui/state";
import { serverNow } from "../ui/time";
import { useListing } from "./listing";
import { rowOf, Rows, stepOf, type Row, type RunOf } from "./rows";

/** Number of rows in one query, and the poll interval of the first rows in milliseconds. */
const QUERY_ROWS = 50;
const POLL_INTERVAL = 1_500;

const STATES: readonly (readonly [string, string])[] = [
  ["", "Any state"],
  ...(["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED"] as const).map(
    (it) => [it, WORD[it]] as const,
  ),
];
const PERIODS: readonly (readonly [string, string])[] = [
  ["", "Any time"],
  ["1h", "Last hour"],
  ["24h", "Last day"],
  ["7d", "Last week"],
  ["30d", "Last month"],
];
/** The filter that includes or excludes executions of sub-plans. */
const SUB_EXECUTION_FILTER: readonly (readonly [string, string])[] = [
  ["", "Top level only"],
  ["all", "Include sub-executions"],
];
const HOURS: Record<string, number> = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };

/** Returns the start of a period that ends now. */
function since(span: string): string | undefined {
  const hours = HOURS[span];
  return hours ? new Date(serverNow() - hours * 3_600_000).toISOString() : undefined;
}

function requestRow({ cursor, node }: { cursor: string; node: RequestRow }): Row {
  const run = node.executions.at(-1) ?? null;
  const isOpen = run !== null && !OVER.has(run.state);
  return { key: node.requestId, cursor, href: `/requests/${node.requestId}`, text: node.query, id: node.requestId, note: "", createdAt: node.createdAt, run, planningError: node.planningError, reason: run ? (run.findings[0] ?? null) : (node.findings[0] ?? null), isOpen };
}

function runRow({ cursor, node }: { cursor: string; node: RunOf & { request: { query: string } | null } }): Row {
  return rowOf(cursor, node, node.request?.query ?? node.executionId, node.parentStepId === null ? "" : `sub-execution of ${stepOf(node)}`);
}

export function RequestsPage({ kind }: { kind: "requests" | "executions" }) {
  useTitle(kind === "requests" ? "Requests" : "Executions");
  const [search, setSearch] = useParam("search");
  const [state, setState] = useParam("state");
  const [tool] = useParam("tool");
  const [parts, setParts] = useParam("parts");
  const [span, setSpan] = useParam("since");
  const [needs, setNeeds] = useParam("needs");
  const hasParts = kind === "executions" && parts !== "";
  const { needy, count } = useNeedsPerson(kind, hasParts);
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
            <SearchBox label="Search requests" value={search} onSearch={setSearch} placeholder="Search requests, or paste an id" />
          ) : (
            <SearchBox label="Tool" value={tool} onSearch={(it) => setParams({ tool: it })} placeholder="A tool of the plan, or an id" />
          )}
          <Choice label="State" value={state} options={STATES} onChange={setState} />
          <button type="button" class="needs-filter" aria-pressed={needs !== ""} onClick={() => setNeeds(needs === "" ? "person" : "")}>
            <Icon name="person" />
            Needs a person
            {count !== "0" && <span class="count">{count}</span>}
          </button>
          <Choice label="Since" value={span} options={PERIODS} onChange={setSpan} />
          {kind === "executions" && <Choice label="Sub-executions" value={parts} options={SUB_EXECUTION_FILTER} onChange={setParts} />}
        </div>
      </header>
      {kind === "requests" ? <RequestList search={search} state={state} span={span} isNeedy={needs !== ""} needy={needy} /> : <ExecutionList tool={tool} state={state} span={span} isNeedy={needs !== ""} needy={needy} hasParts={hasParts} />}
    </div>
  );
}

/** Poll interval of the executions that need a person, in milliseconds. */
const NEEDY_POLL_INTERVAL = 3_000;

/** Returns the ids of the rows that need a person, and their number. */
function useNeedsPerson(kind: "requests" | "executions", hasParts: boolean): { needy: ReadonlySet<string>; count: string } {
  // A request needs a person if any of its executions needs one, even an execution of a sub-plan.
  const asked = useAsk(NeedPerson, { parts: kind === "requests" || hasParts ? null : false }, NEEDY_POLL_INTERVAL);
  const found = asked.data?.executions;
  return useMemo(() => {
    const needy = new Set(found?.nodes.map((run) => (kind === "requests" ? run.requestId : run.executionId)));
    return { needy, count: `${needy.size}${found?.pageInfo.hasNextPage ? "+" : ""}` };
  }, [found, kind]);
}

interface ListProps {
  state: string;
  span: string;
  /** True if the list shows only rows that need a person. */
  isNeedy: boolean;
  needy: ReadonlySet<string>;
}

/** A search field. It searches after a pause in typing. If the text is an id, it opens the page of the object. */
export function SearchBox({ label, value, onSearch, placeholder }: { label: string; value: string; onSearch: (it: string) => void; placeholder: string }) {
  const [text, setText] = useState(value);
  /**
   * The last searched text. When it comes back as `value`, the user may already have typed more, so it does not
   * replace the text.
   */
  const told = useRef(value);
  useLayoutEffect(() => {
    if (value === told.current) return;
    told.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === told.current) return;
    const to = placeOf(text.trim());
    if (to) return go(to);
    const timer = setTimeout(() => {
      told.current = text;
      onSearch(text);
    }, 180);
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

function RequestList({ search, state, span, isNeedy, needy }: ListProps & { search: string }) {
  // Computed only when the user chooses the period. Otherwise the filter would change all the time, and the list would
  // load again.
  const from = useMemo(() => since(span) ?? null, [span]);
  const filter: RequestFilter = { search: search || null, state: (state || null) as ExecutionState | null, needsPerson: isNeedy || null, from };
  const asked = useAsk(Requests, { filter, first: QUERY_ROWS }, POLL_INTERVAL);
  const part = asked.data?.requests;
  const first = useMemo(() => part && { rows: part.edges.map(requestRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const list = useListing(print(["requests", search, state, span, isNeedy]), asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { requests } = await ask(Requests, { filter, first: count, after });
    return { rows: requests.edges.map(requestRow), hasMore: requests.pageInfo.hasNextPage };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!asked.isCurrent && list.rows.length === 0) return <Loading />;
  return <Rows label="Requests" {...list} needy={needy} empty={<Nothing isFiltered={search !== "" || isNeedy || state !== "" || span !== ""} />} />;
}

function ExecutionList({ tool, state, span, isNeedy, needy, hasParts }: ListProps & { tool: string; hasParts: boolean }) {
  const from = useMemo(() => since(span) ?? null, [span]);
  const filter = { toolName: tool || null, state: state ? [state as ExecutionState] : null, parts: hasParts, needsPerson: isNeedy || null, from };
  const asked = useAsk(Executions, { filter, first: QUERY_ROWS }, POLL_INTERVAL);
  const part = asked.data?.executions;
  const first = useMemo(() => part && { rows: part.edges.map(runRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const list = useListing(print(["executions", tool, state, span, hasParts, isNeedy]), asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { executions } = await ask(Executions, { filter, first: count, after });
    return { rows: executions.edges.map(runRow), hasMore: executions.pageInfo.hasNextPage };
  });
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!asked.isCurrent && list.rows.length === 0) return <Loading />;
  return <Rows label="Executions" {...list} needy={needy} empty={<Nothing isFiltered={tool !== "" || isNeedy || state !== "" || span !== ""} />} />;
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No matches">
      <button type="button" class="link" onClick={() => setParams({ search: "", state: "", since: "", tool: "", needs: "" })}>
        Clear filters
      </button>
    </Empty>
  ) : (
    <Empty title="No requests yet">
      <p>
        <a href="/new">Create a plan</a>, or on the command line:
      </p>
      <pre class="code">faber run "Create author Alice with email alice@test.com"</pre>
    </Empty>
  );
}
