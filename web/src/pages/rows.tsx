/** The rows of lists of requests and executions. */

import type { ComponentChildren } from "preact";

import type { Reason, RunPart, RunRow } from "../api/generated";
import { Dot, Meter, OVER, WORD } from "../ui/state";
import { Icon } from "../ui/icons";
import { Plain, plain } from "../ui/plain";
import { formatAge, formatDateTime, startsText, elapsedText, useNow } from "../ui/time";
import { Virtual } from "../ui/virtual";
import type { Entry } from "./listing";

const ROW_HEIGHT = 52;

export interface Row extends Entry {
  href: string;
  text: string;
  id: string;
  /** Further information in short form. */
  note: string;
  run: RunRow | null;
  /** The error of planning. Null if there is none. */
  planningError: { code: string; message: string } | null;
  /** The most important finding. */
  reason: Reason | null;
}

/** An execution, its parent step, and its most important finding. */
export type RunOf = RunRow & RunPart & { findings: Reason[] };

/** Returns the row of an execution. */
export function rowOf(cursor: string, run: RunOf, text: string, note: string): Row {
  const id = run.executionId;
  return { key: id, cursor, href: `/executions/${id}`, text, id, note, createdAt: run.createdAt, run, planningError: null, reason: run.findings[0] ?? null, isOpen: !OVER.has(run.state) };
}

/** Returns the step or item of the parent that started the execution. Empty without a parent. */
export function stepOf({ parentStepId, parentIndex }: RunPart): string {
  return parentStepId === null ? "" : parentStepId + (parentIndex === null ? "" : `[${parentIndex}]`);
}

interface Props {
  label: string;
  rows: Row[];
  /** Ids of the rows that need a person. */
  needy?: ReadonlySet<string>;
  hasMore: boolean;
  isLoading: boolean;
  more: () => void;
  /** Scroll position in pixels. */
  scroll: { top: number };
  /** Number of rows that match, on all pages. */
  total?: ComponentChildren;
  /** Shown if there are no rows. */
  empty: ComponentChildren;
  /** The rows that the user has chosen for an action. Null if rows cannot be chosen. */
  selection?: Selection | null;
}

export interface Selection {
  ids: ReadonlySet<string>;
  onToggle: (id: string) => void;
  onAll: (ids: string[]) => void;
}

export function Rows({ label, rows, needy, hasMore, isLoading, more, scroll, total, empty, selection = null }: Props) {
  const now = useNow(1_000);
  if (rows.length === 0 && !hasMore) return <>{empty}</>;
  return (
    <div class={selection ? "list has-selection" : "list"}>
      <div class="list-head">
        {selection ? <ChooseAll rows={rows} selection={selection} /> : <span />}
        <span aria-hidden="true">{label === "Requests" ? "Query" : "Execution"}</span>
        <span aria-hidden="true">Steps</span>
        <span aria-hidden="true" class="right">Duration</span>
        <span aria-hidden="true" class="right">Created</span>
      </div>
      <Virtual
        items={rows}
        rowHeight={ROW_HEIGHT}
        label={label}
        scroll={scroll}
        onEnd={() => hasMore && !isLoading && more()}
        row={(row) => <Line key={row.key} row={row} isNeedy={needy?.has(row.id) ?? false} now={now} selection={selection} />}
      />
      <p class="list-foot faint">
        <span>{rows.length.toLocaleString("en")} shown</span>
        {total}
        {hasMore && (
          <button type="button" class="link" disabled={isLoading} onClick={more}>
            Show older ones
          </button>
        )}
      </p>
    </div>
  );
}

/** A checkbox that chooses all rows that are shown. */
function ChooseAll({ rows, selection }: { rows: readonly Row[]; selection: Selection }) {
  const isAll = selection.ids.size > 0 && rows.every((row) => selection.ids.has(row.id));
  return (
    <label class="row-choice">
      <input type="checkbox" aria-label="Choose all shown" checked={isAll} onChange={() => selection.onAll(isAll ? [] : rows.map((row) => row.id))} />
    </label>
  );
}

/** CSS classes of reasons, by the kind of finding. */
const TONES: Record<string, string> = { FAILURE: "text-bad", WAIT: "text-waiting", WARNING: "text-waiting", SKIP: "faint", TAKEOVER: "faint" };

interface LineProps {
  row: Row;
  isNeedy: boolean;
  now: number;
  selection: Selection | null;
}

function Line({ row, isNeedy, now, selection }: LineProps) {
  const { run } = row;
  const isRunning = run !== null && !OVER.has(run.state);
  // The row of a finished execution shows no finding that is only information.
  const reason = row.reason?.severity === "INFO" && !isRunning ? null : row.reason;
  const start = run?.state === "PENDING" && run.startAt !== null && Date.parse(run.startAt) > now ? run.startAt : null;
  const state = run?.state ?? (row.planningError ? "FAILED" : "PENDING");
  const word = start ? startsText(start, now) : run ? WORD[run.state] : row.planningError ? "Planning failed" : "Not executed";
  return (
    <div role="listitem" class="list-row" data-id={row.id} data-state={run?.state ?? (row.planningError ? "FAILED" : "")} {...(isNeedy ? { "data-needs-person": "" } : {})}>
      {selection && (
        <label class="row-choice">
          <input type="checkbox" aria-label={`Choose ${row.id}`} checked={selection.ids.has(row.id)} onChange={() => selection.onToggle(row.id)} />
        </label>
      )}
      <a class="row-link" href={row.href}>
        <span class="row-state">
          <Dot state={state} />
          <span class="unseen">{word}</span>
        </span>
        <span class="row-text">
          <span class="row-title">
            <span class="cut">
              <Plain text={row.text} />
            </span>
            {isNeedy && (
              <span class="tag tone-waiting needs-mark">
                <Icon name="person" size={12} />
                <span>Needs a person</span>
              </span>
            )}
          </span>
          <span class="row-id faint cut">
            {(run || row.planningError) && <span>{word}</span>}
            {reason && !start && <span class={`row-reason ${TONES[reason.kind] ?? ""}`}>{plain(reason.message.replaceAll("`", ""))}</span>}
            {row.note && <span>{row.note}</span>}
            <span class="mono">{row.id}</span>
          </span>
        </span>
        <span class="row-meter">{run ? <Meter {...run} /> : <span class={row.planningError ? "text-bad" : "faint"}>{row.planningError ? "planning failed" : "not executed"}</span>}</span>
        <span class="row-time right">{run && !start && <Spent run={run} reason={reason} now={now} />}</span>
        <span class="row-age right faint" title={formatDateTime(row.createdAt)}>
          {formatAge(row.createdAt, now)}
        </span>
      </a>
    </div>
  );
}

/** The duration of an execution. While it waits, the time of the wait is apart from the time before. */
function Spent({ run, reason, now }: { run: RunRow; reason: Reason | null; now: number }) {
  const since = reason?.kind === "WAIT" && (run.state === "WAITING" || run.state === "PAUSED") ? reason.at : null;
  if (since === null) return <>{elapsedText(run.startedAt, OVER.has(run.state) ? run.finishedAt : null, now)}</>;
  return (
    <span class="row-spent">
      <span>{elapsedText(run.startedAt, since, now)}</span>
      <span class="faint">waits {elapsedText(since, null, now)}</span>
    </span>
  );
}
