/** States, each with a colour, a shape and a word: none of them alone has to do. */

import type { ExecutionState, StepState } from "../api/generated";

export type State = ExecutionState | StepState;

/** What family of colours a state has. */
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
  COMPENSATING: "Undoing",
  COMPENSATED: "Undone",
  COMPLETED: "Completed",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  SKIPPED: "Skipped",
  CANCELLED: "Cancelled",
};

export const OVER: ReadonlySet<State> = new Set(["COMPLETED", "FAILED", "CANCELLED"]);

/** The shape of a state, in a square of 16. */
const SHAPE: Record<string, string> = {
  idle: "M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6Z",
  good: "M4.6 8.3l2.3 2.3 4.6-4.9",
  bad: "M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4",
  waiting: "M6.3 5.2v5.6M9.7 5.2v5.6",
  retrying: "M11.4 7.2A3.6 3.6 0 1 0 11 10M11.6 4.9v2.5H9.1",
  skipped: "M5 5.2L8 8l-3 2.8M8.4 5.2l3 2.8-3 2.8",
  stopped: "M5.8 5.8h4.4v4.4H5.8z",
  undone: "M6.4 5L4.6 6.8l1.8 1.8M4.8 6.8h4.4a2.2 2.2 0 0 1 0 4.4H7",
  running: "M8 3.6a4.4 4.4 0 0 1 4.4 4.4",
};

export function Dot({ state, size = 16 }: { state: State; size?: number }) {
  const tone = TONE[state];
  return (
    <svg class={`dot tone-${tone}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      {tone !== "idle" && <circle cx="8" cy="8" r="7" class="dot-ground" />}
      <path d={SHAPE[tone]} class="dot-shape" />
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

/** Counts of steps by their state, as one thin bar. */
export function Meter(counts: { total: number; successful: number; failed: number; skipped: number; cancelled: number }) {
  const { total, successful, failed, skipped, cancelled } = counts;
  const label = `${successful} of ${total} steps succeeded${failed ? `, ${failed} failed` : ""}${skipped ? `, ${skipped} skipped` : ""}`;
  const part = (n: number, tone: string, x: number) =>
    n > 0 && <rect x={(x / Math.max(1, total)) * 100} width={(n / Math.max(1, total)) * 100} height="4" class={`fill-${tone}`} />;
  return (
    <span class="meter" title={label}>
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
        <rect width="100" height="4" class="fill-rest" />
        {part(successful, "good", 0)}
        {part(failed, "bad", successful)}
        {part(skipped, "skipped", successful + failed)}
        {part(cancelled, "stopped", successful + failed + skipped)}
      </svg>
      <span class="meter-text">
        {successful}
        <span class="faint">/{total}</span>
      </span>
    </span>
  );
}
