/** Rows of lists that show requests and executions: what it is, how far, how long, how old. */

import type { ComponentChildren } from "preact";

import type { Reason, RunPart, RunRow } from "../api/generated";
import { Dot, Meter, OVER, WORD } from "../ui/state";
import { Icon } from "../ui/icons";
import { Plain, plain } from "../ui/plain";
import { ago, moment, startsText, took, useNow } from "../ui/time";
import { Virtual } from "../ui/virtual";
import type { Entry } from "./listing";

const ROW = 52;

export interface Row extends Entry {
  href: string;
  text: string;
  id: string;
  /** What else is worth knowing of it. */
  note: string;
  run: RunRow | null;
  /** Why there is no plan. */
  planningError: { code: string; message: string } | null;
  /** Why it failed, waits, or what else is worth knowing first. */
  reason: Reason | null;
}

/** An execution, of which other one it is a part, and what is worth knowing first. */
export type RunOf = RunRow & RunPart & { findings: Reason[] };

/** The row of an execution. */
export function rowOf(cursor: string, run: RunOf, text: string, note: string): Row {
  const id = run.executionId;
  return { key: id, cursor, href: `/executions/${id}`, text, id, note, createdAt: run.createdAt, run, planningError: null, reason: run.findings[0] ?? null, isOpen: !OVER.has(run.state) };
}

/** Which step of another execution it is, or which item of one; nothing where it is none. */
export function stepOf({ parentStepId, parentIndex }: RunPart): string {
  return parentStepId === null ? "" : parentStepId + (parentIndex === null ? "" : `[${parentIndex}]`);
}

interface Props {
  label: string;
  rows: Row[];
  /** The ids of those that go on only once a person acts. */
  needy?: ReadonlySet<string>;
  hasMore: boolean;
  isLoading: boolean;
  more: () => void;
  /** How far down somebody reads. */
  scroll: { top: number };
  /** What is shown where there are none. */
  empty: ComponentChildren;
}

export function Rows({ label, rows, needy, hasMore, isLoading, more, scroll, empty }: Props) {
  const now = useNow(1_000);
  if (rows.length === 0) return <>{empty}</>;
  return (
    <div class="list">
      <div class="list-head" aria-hidden="true">
        <span />
        <span>{label === "Requests" ? "Query" : "Execution"}</span>
        <span>Steps</span>
        <span class="right">Duration</span>
        <span class="right">Created</span>
      </div>
      <Virtual items={rows} rowHeight={ROW} label={label} scroll={scroll} row={(it) => <Line key={it.key} row={it} isNeedy={needy?.has(it.id) ?? false} now={now} />} />
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

/** How the reason of a row is coloured. */
const TONES: Record<string, string> = { FAILURE: "text-bad", WAIT: "text-waiting", WARNING: "text-waiting", SKIP: "faint", TAKEOVER: "faint" };

function Line({ row, isNeedy, now }: { row: Row; isNeedy: boolean; now: number }) {
  const { run } = row;
  const isRunning = run !== null && !OVER.has(run.state);
  // What is over and went well needs no reason.
  const reason = row.reason?.severity === "INFO" && !isRunning ? null : row.reason;
  const start = run?.state === "PENDING" && run.startAt !== null && Date.parse(run.startAt) > now ? run.startAt : null;
  const state = run?.state ?? (row.planningError ? "FAILED" : "PENDING");
  const word = start ? startsText(start, now) : run ? WORD[run.state] : row.planningError ? "Planning failed" : "Not executed";
  return (
    <div role="listitem" class="list-row" data-id={row.id} data-state={run?.state ?? (row.planningError ? "FAILED" : "")} {...(isNeedy ? { "data-needs-person": "" } : {})}>
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
        <span class="row-time right">{run && !start && took(run.startedAt, isRunning ? null : run.finishedAt, now)}</span>
        <span class="row-age right faint" title={moment(row.createdAt)}>
          {ago(row.createdAt, now)}
        </span>
      </a>
    </div>
  );
}
