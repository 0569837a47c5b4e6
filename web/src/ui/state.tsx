/** Shows states by colour, shape and word, so that users who cannot see colours can use the shapes or the words. */

import type { ExecutionState, StepState } from "../api/generated";
import { SHAPES } from "./shapes";

export type State = ExecutionState | StepState;

/** The colour name of each state. */
export const TONE: Record<State, string> = {
  PENDING: "idle",
  IN_PROGRESS: "running",
  RUNNING: "running",
  RETRYING: "retrying",
  PAUSED: "waiting",
  WAITING: "waiting",
  COMPENSATING: "undone",
  COMPENSATED: "undone",
  COMPLETED: "good",
  SUCCEEDED: "good",
  FAILED: "bad",
  SKIPPED: "skipped",
  CANCELLED: "stopped",
};

export const WORD: Record<State, string> = {
  PENDING: "Pending",
  IN_PROGRESS: "Running",
  RUNNING: "Running",
  RETRYING: "Retrying",
  PAUSED: "Paused",
  WAITING: "Waiting",
  COMPENSATING: "Compensating",
  COMPENSATED: "Compensated",
  COMPLETED: "Completed",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  SKIPPED: "Skipped",
  CANCELLED: "Cancelled",
};

export const OVER: ReadonlySet<State> = new Set(["COMPLETED", "FAILED", "CANCELLED"]);

export function Dot({ state, size = 16 }: { state: State; size?: number }) {
  const tone = TONE[state];
  return (
    <svg class={`dot tone-${tone}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      {tone !== "idle" && <circle cx="8" cy="8" r="7" class="dot-ground" />}
      <path d={SHAPES[tone]} class="dot-shape" />
    </svg>
  );
}

export function Pill({ state }: { state: State }) {
  return (
    <span class={`pill tone-${TONE[state]}`}>
      <Dot state={state} />
      {WORD[state]}
    </span>
  );
}

/** The steps of an execution by state, as a thin bar. */
export function Meter(counts: { total: number; successful: number; failed: number; skipped: number; cancelled: number; undone?: number; notUndone?: number; partly?: number }) {
  const { total, successful, failed, skipped, cancelled, undone = 0, notUndone = 0, partly = 0 } = counts;
  const more = [
    [failed, "failed"],
    [skipped, "skipped"],
    [cancelled, "cancelled"],
    [undone, "compensated"],
    [notUndone, "could not be undone"],
  ] as const;
  const label = [`${successful} of ${total} steps succeeded`, ...more.filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`)].join(", ");
  const stays = successful - undone - notUndone;
  const part = (n: number, tone: string, x: number) =>
    n > 0 && <rect x={(x / Math.max(1, total)) * 100} width={(n / Math.max(1, total)) * 100} height="4" class={`fill-${tone}`} />;
  return (
    <span class="meter" title={label}>
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
        <rect width="100" height="4" class="fill-rest" />
        {part(stays, "good", 0)}
        {part(undone, "undone", stays)}
        {part(notUndone, "bad", stays + undone)}
        {part(failed, "bad", successful)}
        {part(skipped, "skipped", successful + failed)}
        {part(cancelled, "stopped", successful + failed + skipped)}
        {part(partly, "running", successful + failed + skipped + cancelled)}
      </svg>
      <span class="meter-text">
        {successful}
        <span class="faint">/{total}</span>
      </span>
    </span>
  );
}
