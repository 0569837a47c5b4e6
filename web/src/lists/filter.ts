/** The filter of the lists of requests and executions. The URL is its only state. */

import type { ExecutionFilter, ExecutionState, Json, RequestFilter } from "../api/generated";
import { OVER, WORD } from "../ui/state";
import { serverNow } from "../ui/time";

/** The parameters of the URL that form the filter. */
export const FILTER_NAMES = ["search", "text", "state", "needs", "tool", "failed", "error", "label", "since", "from", "to", "parts"] as const;
export type FilterName = (typeof FILTER_NAMES)[number];
export type Filter = Record<FilterName, string>;

export const STATES = ["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED"] as const satisfies readonly ExecutionState[];

/** The states in which a bulk action can still change an execution. */
export const OPEN_STATES: readonly ExecutionState[] = STATES.filter((state) => !OVER.has(state));

export const PERIODS: readonly (readonly [string, string, number])[] = [
  ["1h", "Last hour", 3_600_000],
  ["24h", "Last day", 86_400_000],
  ["7d", "Last week", 604_800_000],
  ["30d", "Last month", 2_592_000_000],
];

export function readFilter(query: URLSearchParams): Filter {
  return Object.fromEntries(FILTER_NAMES.map((name) => [name, query.get(name) ?? ""])) as Filter;
}

/** Returns the address of a list with this filter. */
export function listPath(filter: Partial<Filter>, kind: "requests" | "executions" = "executions"): string {
  const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value !== ""));
  const text = query.toString();
  return `/${kind}${text ? `?${text}` : ""}`;
}

/** Returns the states of a filter. States that do not exist are left out. */
export function statesOf({ state }: Pick<Filter, "state">): ExecutionState[] {
  const names = state.split(",");
  return STATES.filter((known) => names.includes(known));
}

/** Returns the start of a period that ends now. */
export function startOf(period: string): string | null {
  const length = PERIODS.find(([name]) => name === period)?.[2];
  return length === undefined ? null : new Date(serverNow() - length).toISOString();
}

/** Reads labels such as `team=shop, urgent`. A label without a value can have any value. */
export function readLabels(text: string): { [key: string]: Json } | null {
  const pairs = text.split(",").flatMap((part): [string, Json][] => {
    const [key = "", ...rest] = part.split("=");
    return key.trim() === "" ? [] : [[key.trim(), rest.length > 0 ? rest.join("=").trim() : null]];
  });
  return pairs.length === 0 ? null : Object.fromEntries(pairs);
}

/** Returns a time of the URL, or null for a text that is no time. */
function readTime(text: string): string | null {
  const time = Date.parse(text);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

/** Returns the filter for the API. `since` is the start of the chosen period. */
export function toExecutionFilter(filter: Filter, since: string | null): ExecutionFilter {
  const states = statesOf(filter);
  return {
    state: states.length > 0 ? states : null,
    toolName: filter.tool || null,
    failedTool: filter.failed || null,
    errorCode: filter.error || null,
    errorText: filter.text || null,
    labels: readLabels(filter.label),
    needsPerson: filter.needs === "person" ? true : filter.needs === "none" ? false : null,
    parts: filter.parts !== "",
    from: readTime(filter.from) ?? since,
    to: readTime(filter.to),
  };
}

export function toRequestFilter(filter: Filter, since: string | null): RequestFilter {
  return {
    search: filter.search || null,
    state: statesOf(filter)[0] ?? null,
    needsPerson: filter.needs === "person" ? true : null,
    from: readTime(filter.from) ?? since,
    to: readTime(filter.to),
  };
}

/** A part of the filter that the user can remove. */
export interface Chip {
  name: FilterName;
  label: string;
  text: string;
}

const LABELS: Record<FilterName, string> = {
  search: "Query",
  text: "Error text",
  state: "State",
  needs: "Person",
  tool: "Tool",
  failed: "Failed tool",
  error: "Error code",
  label: "Label",
  since: "Time",
  from: "From",
  to: "To",
  parts: "Sub-executions",
};

/** Returns the chips of a filter. Parts with a control of their own, which are `without`, have none. */
export function chipsOf(filter: Filter, without: ReadonlySet<FilterName>): Chip[] {
  return FILTER_NAMES.filter((name) => filter[name] !== "" && !without.has(name)).map((name) => ({ name, label: LABELS[name], text: chipText(name, filter) }));
}

function chipText(name: FilterName, filter: Filter): string {
  if (name === "state") return statesOf(filter).map((state) => WORD[state]).join(" or ");
  if (name === "since") return PERIODS.find(([period]) => period === filter.since)?.[1] ?? filter.since;
  if (name === "needs") return filter.needs === "person" ? "needed" : "not needed";
  if (name === "parts") return "included";
  if (name === "from" || name === "to") return new Date(filter[name]).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
  return filter[name];
}
