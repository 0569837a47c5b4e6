/** The lists of requests and executions, newest first. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ask, useAsk } from "../api/client";
import { Executions, ListTotals, NeedPerson, Requests, RequestTotals, type RequestRow } from "../api/generated";
import { print } from "../api/json";
import { BulkBar, MAX_CHOSEN } from "../bulk/bar";
import { chipsOf, FILTER_NAMES, listPath, PERIODS, readFilter, startOf, STATES, toExecutionFilter, toRequestFilter, type Filter, type FilterName } from "../lists/filter";
import { isInlinePlan } from "../lists/inline";
import { MoreFilters } from "../lists/more-filters";
import { Views } from "../lists/views";
import { place, setParams } from "../router";
import { useCell } from "../api/cell";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Empty, Loading, useTitle } from "../ui/page";
import { SearchBox } from "../ui/search-box";
import { OVER, WORD } from "../ui/state";
import { useListing } from "./listing";
import { rowOf, Rows, stepOf, type Row, type RunOf } from "./rows";

/** Number of rows in one query, and the poll interval of the first rows in milliseconds. */
const QUERY_ROWS = 50;
const POLL_INTERVAL = 1_500;
/** Poll interval of the numbers above a list, and of the executions that need a person, in milliseconds. */
const TOTALS_POLL_INTERVAL = 5_000;
const NEEDY_POLL_INTERVAL = 3_000;

type Kind = "requests" | "executions";

const STATE_CHOICES: readonly (readonly [string, string])[] = [["", "Any state"], ...STATES.map((state) => [state, WORD[state]] as const)];
const PERIOD_CHOICES: readonly (readonly [string, string])[] = [["", "Any time"], ...PERIODS.map(([name, text]) => [name, text] as const)];
/** The filter that includes or excludes executions of sub-plans. */
const SUB_EXECUTION_CHOICES: readonly (readonly [string, string])[] = [
  ["", "Top level only"],
  ["all", "Include sub-executions"],
];

/** The row of a request. */
interface RequestLine extends Row {
  isInline: boolean;
}

function requestRow({ cursor, node }: { cursor: string; node: RequestRow }): RequestLine {
  const run = node.executions.at(-1) ?? null;
  const isOpen = run !== null && !OVER.has(run.state);
  return { key: node.requestId, cursor, href: `/requests/${node.requestId}`, text: node.query, id: node.requestId, note: "", createdAt: node.createdAt, run, planningError: node.planningError, reason: run ? (run.findings[0] ?? null) : (node.findings[0] ?? null), isOpen, isInline: isInlinePlan(node) };
}

function runRow({ cursor, node }: { cursor: string; node: RunOf & { request: { query: string } | null } }): Row {
  return rowOf(cursor, node, node.request?.query ?? node.executionId, node.parentStepId === null ? "" : `sub-execution of ${stepOf(node)}`);
}

export function RequestsPage({ kind }: { kind: Kind }) {
  const title = kind === "requests" ? "Requests" : "Executions";
  useTitle(title);
  const { query } = useCell(place);
  const filter = useMemo(() => readFilter(query), [query.toString()]);
  // Computed only when the user chooses the period. Otherwise the filter would change all the time, and the list would
  // load again.
  const since = useMemo(() => startOf(filter.since), [filter.since]);
  const { needy, count } = useNeedsPerson(kind, kind === "executions" && filter.parts !== "");
  const list = { filter, since, needy };
  return (
    <div class="page list-page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>{title}</h1>
          <a class="button primary" href="/new">
            <Icon name="plus" />
            New plan
          </a>
        </div>
        <FilterBar kind={kind} filter={filter} needyCount={count} />
        <Chips kind={kind} filter={filter} />
      </header>
      {kind === "requests" ? <RequestList {...list} /> : <ExecutionList {...list} />}
    </div>
  );
}

function FilterBar({ kind, filter, needyCount }: { kind: Kind; filter: Filter; needyCount: string }) {
  const [isOpen, setOpen] = useState(false);
  const states = filter.state.split(",");
  // A filter with several states is shown as a chip.
  const state = states.length > 1 ? "" : filter.state;
  return (
    <div class="filters">
      <div class="switch" role="group" aria-label="What is listed">
        {(["requests", "executions"] as const).map((one) => (
          <a key={one} class="button" href={`/${one}`} {...(one === kind ? { "aria-current": "page" as const } : {})}>
            {one === "requests" ? "Requests" : "Executions"}
          </a>
        ))}
      </div>
      {kind === "requests" ? (
        <SearchBox label="Search requests" value={filter.search} onSearch={(search) => setParams({ search })} placeholder="Search requests, or paste an id" />
      ) : (
        <SearchBox label="Search errors" value={filter.text} onSearch={(text) => setParams({ text })} placeholder="Words of the error, or an id" />
      )}
      <Choice label="State" value={state} options={STATE_CHOICES} onChange={(state) => setParams({ state })} />
      <button type="button" class="needs-filter" aria-pressed={filter.needs === "person"} onClick={() => setParams({ needs: filter.needs === "person" ? "" : "person" })}>
        <Icon name="person" />
        Needs a person
        {needyCount !== "0" && <span class="count">{needyCount}</span>}
      </button>
      <Choice label="Since" value={filter.since} options={PERIOD_CHOICES} onChange={(since) => setParams({ since, from: "", to: "" })} />
      {kind === "executions" && (
        <>
          <Choice label="Sub-executions" value={filter.parts} options={SUB_EXECUTION_CHOICES} onChange={(parts) => setParams({ parts })} />
          <button type="button" onClick={() => setOpen(true)}>
            More filters…
          </button>
        </>
      )}
      {isOpen && <MoreFilters filter={filter} onClose={() => setOpen(false)} />}
    </div>
  );
}

/** The parts of the filter that have a control in the bar. */
const OWN_CONTROLS: Record<Kind, readonly FilterName[]> = {
  requests: ["search", "needs", "since", "parts", "tool", "failed", "error", "label", "text"],
  executions: ["text", "since", "parts", "search"],
};

/** The parts of the filter that the user can remove, and the saved views. */
function Chips({ kind, filter }: { kind: Kind; filter: Filter }) {
  const without = new Set(OWN_CONTROLS[kind]);
  if (!filter.state.includes(",")) without.add("state");
  if (filter.needs === "person") without.add("needs");
  const chips = chipsOf(filter, without);
  return (
    <div class="chip-line">
      {chips.length > 0 && (
        <ul class="chips" aria-label="Filter">
          {chips.map(({ name, label, text }) => (
            <li key={name} class="chip">
              <span>
                {label}: <strong>{text}</strong>
              </span>
              <button type="button" class="ghost" aria-label={`Remove the filter ${label}`} onClick={() => setParams({ [name]: "" })}>
                <Icon name="close" size={12} />
              </button>
            </li>
          ))}
        </ul>
      )}
      <Views path={listPath(filter, kind)} isFiltered={FILTER_NAMES.some((name) => filter[name] !== "")} />
    </div>
  );
}

/** Returns the ids of the rows that need a person, and their number. */
function useNeedsPerson(kind: Kind, hasParts: boolean): { needy: ReadonlySet<string>; count: string } {
  // A request needs a person if any of its executions needs one, even an execution of a sub-plan.
  const asked = useAsk(NeedPerson, { parts: kind === "requests" || hasParts ? null : false }, NEEDY_POLL_INTERVAL);
  const found = asked.data?.executions;
  return useMemo(() => {
    const needy = new Set(found?.nodes.map((run) => (kind === "requests" ? run.requestId : run.executionId)));
    return { needy, count: `${needy.size}${found?.pageInfo.hasNextPage ? "+" : ""}` };
  }, [found, kind]);
}

interface ListProps {
  filter: Filter;
  /** Start of the chosen period. */
  since: string | null;
  needy: ReadonlySet<string>;
}

function isFiltered(filter: Filter): boolean {
  return FILTER_NAMES.some((name) => name !== "parts" && filter[name] !== "");
}

function RequestList({ filter, since, needy }: ListProps) {
  const wanted = toRequestFilter(filter, since);
  const asked = useAsk(Requests, { filter: wanted, first: QUERY_ROWS }, POLL_INTERVAL);
  const totals = useAsk(RequestTotals, { filter: wanted }, TOTALS_POLL_INTERVAL);
  const part = asked.data?.requests;
  const first = useMemo(() => part && { rows: part.edges.map(requestRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const { rows: all, ...list } = useListing<RequestLine>(print(["requests", filter]), asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { requests } = await ask(Requests, { filter: wanted, first: count, after });
    return { rows: requests.edges.map(requestRow), hasMore: requests.pageInfo.hasNextPage };
  });
  const rows = all.filter((row) => !row.isInline);
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!asked.isCurrent && all.length === 0) return <Loading />;
  return (
    <Rows
      label="Requests"
      {...list}
      rows={rows}
      needy={needy}
      total={totals.isCurrent ? <TotalText found={totals.data?.requests.totalCount} all={totals.data?.all.totalCount} hidden={all.length - rows.length} /> : null}
      empty={<Nothing isFiltered={isFiltered(filter)} />}
    />
  );
}

function ExecutionList({ filter, since, needy }: ListProps) {
  const wanted = toExecutionFilter(filter, since);
  const asked = useAsk(Executions, { filter: wanted, first: QUERY_ROWS }, POLL_INTERVAL);
  const totals = useAsk(ListTotals, { filter: wanted, all: { parts: wanted.parts ?? null } }, TOTALS_POLL_INTERVAL);
  const part = asked.data?.executions;
  const first = useMemo(() => part && { rows: part.edges.map(runRow), hasMore: part.pageInfo.hasNextPage }, [part]);
  const key = print(["executions", filter]);
  const list = useListing(key, asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { executions } = await ask(Executions, { filter: wanted, first: count, after });
    return { rows: executions.edges.map(runRow), hasMore: executions.pageInfo.hasNextPage };
  });
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => setChosen(new Set()), [key]);
  if (asked.error && asked.error.code !== "UNREACHABLE") return <Refused error={asked.error} />;
  if (!asked.isCurrent && list.rows.length === 0) return <Loading />;
  const total = totals.isCurrent ? (totals.data?.executions.totalCount ?? null) : null;
  return (
    <>
      <BulkBar key={key} chosen={chosen} filter={wanted} total={total} onChoose={setChosen} />
      <Rows
        label="Executions"
        {...list}
        needy={needy}
        total={totals.isCurrent ? <TotalText found={totals.data?.executions.totalCount} all={totals.data?.all.totalCount} /> : null}
        selection={{ ids: chosen, onToggle: (id) => setChosen(toggled(chosen, id)), onAll: (ids) => setChosen(new Set(ids.slice(0, MAX_CHOSEN))) }}
        empty={<Nothing isFiltered={isFiltered(filter)} />}
      />
    </>
  );
}

function toggled(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(ids);
  if (!next.delete(id) && next.size < MAX_CHOSEN) next.add(id);
  return next;
}

interface TotalProps {
  found: number | undefined;
  all: number | undefined;
  /** Number of loaded items that are not rows. The server counts them. */
  hidden?: number;
}

/** The number of rows that match, such as `1,204 of 5,000`. */
function TotalText({ found, all, hidden = 0 }: TotalProps) {
  if (found === undefined || all === undefined) return null;
  const [rows, total] = [found - hidden, all - hidden].map((count) => Math.max(0, count).toLocaleString("en"));
  return <span role="status">{found === all ? `${total} in all` : `${rows} of ${total}`}</span>;
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No matches">
      <button type="button" class="link" onClick={() => setParams(Object.fromEntries(FILTER_NAMES.map((name) => [name, ""])))}>
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
