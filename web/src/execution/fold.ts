/**
 * Computes the state of an execution from its events. From the first events alone, it computes the state at a time in
 * the past. The reasons come from the server's findings.
 */

import type { ExecutionState, Happened, Json, StepState } from "../api/generated";
import { itemOf, itemsIn, countFinishedItems, loop, type Items } from "./items";
import { spentText } from "../ui/time";
import { Lines, type Line } from "./lines";

type Data = Record<string, Json | undefined>;

interface Fault {
  code: string;
  message: string;
}

/** One attempt of a step or item. */
export interface Attempt {
  number: number;
  index: number | null;
  from: number;
  to: number | null;
  end: "running" | "succeeded" | "failed" | "interrupted" | "cancelled";
  /** The code of the attempt's error. */
  code: string | null;
  isUndo: boolean;
  /** True if the attempt is a sleep. Sleep does not count as work. */
  isSleep: boolean;
}

/** A period in which a step waits. */
export interface Pause {
  from: number;
  to: number | null;
  kind: string;
}

export interface StepView {
  readonly id: string;
  state: StepState;
  attempts: number;
  tries: Attempt[];
  pauses: Pause[];
  from: number | null;
  to: number | null;
  waitsFor: string | null;
  waitName: string | null;
  progress: { progress: number; total?: number; message?: string } | null;
  /**
   * True if the step was skipped because of its condition or because a step that it needs did not succeed. A retry
   * from a later step skips it again.
   */
  isLeftOut: boolean;
  isReused: boolean;
  items: Items | null;
  /** The step's progress reports, errors and texts on stderr. Null if there are none. */
  lines: Lines | null;
  /** True if the step's compensation failed. */
  isNotUndone: boolean;
  child: string | null;
  parameters: Json | undefined;
  output: Json | undefined;
}

const OVER: ReadonlySet<StepState> = new Set(["SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED", "COMPENSATED"]);

function fresh(id: string): StepView {
  return {
    id,
    state: "PENDING",
    attempts: 0,
    tries: [],
    pauses: [],
    from: null,
    to: null,
    waitsFor: null,
    waitName: null,
    progress: null,
    isLeftOut: false,
    isReused: false,
    items: null,
    lines: null,
    isNotUndone: false,
    child: null,
    parameters: undefined,
    output: undefined,
  };
}

export class Fold {
  readonly steps: StepView[];
  /** Number of events from which this state was computed. */
  length = 0;
  /** Time of the last event. */
  at = 0;
  createdAt: number | null = null;
  startedAt: number | null = null;
  finishedAt: number | null = null;
  node: string | null = null;
  #finished: ExecutionState | null = null;
  #isPaused = false;
  #isUndoing = false;
  #counts: Partial<Record<StepState, number>> = {};
  #places: Map<string, StepView>;
  #loops: StepView[] = [];

  constructor(ids: readonly string[]) {
    this.steps = ids.map(fresh);
    this.#places = new Map(this.steps.map((it) => [it.id, it]));
    this.#counts.PENDING = ids.length;
  }

  step(id: string): StepView | undefined {
    return this.#places.get(id);
  }

  count(state: StepState): number {
    return this.#counts[state] ?? 0;
  }

  get counts() {
    const count = (state: StepState) => this.count(state);
    return {
      total: this.steps.length,
      successful: count("SUCCEEDED") + count("COMPENSATED"),
      failed: count("FAILED"),
      skipped: count("SKIPPED"),
      cancelled: count("CANCELLED"),
      undone: count("COMPENSATED"),
      notUndone: this.steps.reduce((sum, it) => sum + (it.isNotUndone ? 1 : 0), 0),
    };
  }

  get state(): ExecutionState {
    if (this.#finished) return this.#finished;
    if (this.#isUndoing) return "COMPENSATING";
    if (this.#isPaused) return "PAUSED";
    if (this.startedAt === null) return "PENDING";
    // For a loop, the states of the items decide whether the loop runs or waits.
    const isBusy = (items: Items) => itemsIn(items, "RUNNING") > 0 || (itemsIn(items, "PENDING") > 0 && itemsIn(items, "RETRYING") === 0);
    const open = this.#loops.filter((it) => it.items && !isOver(it));
    const running = this.count("RUNNING") - open.filter((it) => it.state === "RUNNING").length;
    if (running > 0 || this.#canGoOn || open.some((it) => isBusy(it.items!))) return "IN_PROGRESS";
    const waits = this.count("WAITING") + this.count("RETRYING") + open.length;
    return waits > 0 ? "WAITING" : "IN_PROGRESS";
  }

  /** Returns true if a step can continue, for example after an approval, and has not started yet. */
  get #canGoOn(): boolean {
    return this.steps.some((it) => it.state === "PENDING" && it.from !== null);
  }

  /** Number of steps and items that wait for a person or a signal. */
  get waiting(): number {
    return this.#loops.reduce((sum, it) => sum + (it.items && it.state === "RUNNING" ? itemsIn(it.items, "WAITING") : 0), this.count("WAITING"));
  }

  get isOver(): boolean {
    return this.#finished !== null;
  }

  apply(event: Happened): void {
    this.length = event.seq;
    const at = Date.parse(event.at);
    this.at = Math.max(this.at, at);
    const data = (event.data ?? {}) as Data;
    const step = event.stepId === null ? undefined : this.#places.get(event.stepId);
    if (!step) return this.#whole(event.type, data, at);
    const before = step.state;
    addLine(step, event, data, at);
    if (event.type.startsWith("step_compensat")) this.#undo(step, event, data, at);
    else if (typeof data.index === "number") this.#item(step, event, data, at);
    else this.#own(step, event, data, at);
    if (step.state === before) return;
    this.#counts[before] = this.count(before) - 1;
    this.#counts[step.state] = this.count(step.state) + 1;
  }

  #whole(type: string, data: Data, at: number): void {
    switch (type) {
      case "created":
        this.createdAt = at;
        for (const [id, output] of Object.entries((data.reused ?? {}) as Record<string, Json>)) {
          const step = this.#places.get(id);
          if (!step) continue;
          step.state = "SUCCEEDED";
          step.isReused = true;
          step.output = output;
          this.#counts.PENDING = this.count("PENDING") - 1;
          this.#counts.SUCCEEDED = this.count("SUCCEEDED") + 1;
        }
        break;
      case "claimed":
        this.startedAt ??= at;
        this.node = typeof data.node === "string" ? data.node : this.node;
        break;
      case "paused":
        this.#isPaused = true;
        break;
      case "resumed":
        this.#isPaused = false;
        break;
      case "compensation_started":
        this.#isUndoing = true;
        break;
      case "finished":
        this.#finished = data.state as ExecutionState;
        this.finishedAt = at;
        break;
    }
  }

  #own(step: StepView, event: Happened, data: Data, at: number): void {
    const fault = (data.error ?? null) as Fault | null;
    switch (event.type) {
      case "step_started":
        step.state = "RUNNING";
        step.from ??= at;
        step.attempts = event.attempt ?? step.attempts + 1;
        step.progress = null;
        step.waitsFor = null;
        endPause(step, at);
        if (typeof data.items === "number") {
          step.items = loop(data.items);
          this.#loops.push(step);
        } else {
          step.tries.push(makeAttempt(event, at, null));
          step.parameters = data.parameters;
        }
        if (typeof data.childExecutionId === "string") step.child = data.childExecutionId;
        break;
      case "step_succeeded":
        ended(step, "succeeded", at, null, null);
        step.output = data.output;
        step.isReused = data.cached === true;
        finishStep(step, "SUCCEEDED", at);
        break;
      case "step_progress":
        step.progress = progressOf(data);
        break;
      case "step_checked":
        step.parameters = data.parameters;
        break;
      case "step_retry_scheduled":
      case "step_interrupted":
        ended(step, fault ? "failed" : "interrupted", at, fault, null);
        step.state = "RETRYING";
        if (fault) step.pauses.push({ from: at, to: null, kind: "retry" });
        break;
      case "step_failed":
        ended(step, "failed", at, fault, null);
        finishStep(step, "FAILED", at);
        break;
      case "step_skipped":
        step.isLeftOut = data.reason === "condition" || data.reason === "dependency";
        finishStep(step, "SKIPPED", at);
        break;
      case "step_waiting":
        ended(step, "failed", at, fault, null);
        step.state = "WAITING";
        step.from ??= at;
        step.waitsFor = String(data.for ?? "");
        step.waitName = typeof data.name === "string" ? data.name : null;
        if (data.parameters !== undefined) step.parameters = data.parameters;
        endPause(step, at);
        step.pauses.push({ from: at, to: null, kind: step.waitsFor });
        break;
      case "step_approved":
        step.state = "PENDING";
        step.waitsFor = null;
        endPause(step, at);
        break;
      case "step_settled":
        // If this execution is a retry, the decision was copied from the earlier execution.
        if (data.outcome === "SUCCEEDED") {
          step.output = data.output ?? null;
          finishStep(step, "SUCCEEDED", at);
        } else if (step.state === "WAITING") finishStep(step, "FAILED", at);
        break;
      case "step_cancelled":
        ended(step, "cancelled", at, null, null);
        finishStep(step, "CANCELLED", at);
        break;
    }
  }

  #item(step: StepView, event: Happened, data: Data, at: number): void {
    const index = data.index as number;
    const fault = (data.error ?? null) as Fault | null;
    const items = (step.items ??= loop(index + 1));
    const item = itemOf(items, index);
    const before = item.state;
    switch (event.type) {
      case "step_started":
        item.state = "RUNNING";
        item.waitsFor = null;
        item.from ??= at;
        if (typeof data.childExecutionId === "string") item.child = data.childExecutionId;
        step.tries.push(makeAttempt(event, at, index));
        break;
      case "step_succeeded":
        item.state = "SUCCEEDED";
        ended(step, "succeeded", at, null, index);
        break;
      case "step_failed":
        item.state = "FAILED";
        ended(step, "failed", at, fault, index);
        break;
      case "step_retry_scheduled":
      case "step_interrupted":
        item.state = "RETRYING";
        ended(step, fault ? "failed" : "interrupted", at, fault, index);
        break;
      case "step_waiting":
        item.state = "WAITING";
        item.waitsFor = String(data.for ?? "");
        item.waitName = typeof data.name === "string" ? data.name : null;
        ended(step, "failed", at, fault, index);
        break;
      case "step_approved":
        item.state = "PENDING";
        break;
      case "step_settled":
        if (data.outcome === "SUCCEEDED") item.state = "SUCCEEDED";
        else if (item.state === "WAITING") item.state = "FAILED";
        break;
      case "step_skipped":
        item.state = "SKIPPED";
        break;
      case "step_cancelled":
        item.state = "CANCELLED";
        ended(step, "cancelled", at, null, index);
        break;
    }
    if (item.state !== "WAITING") item.waitsFor = null;
    if (OVER.has(item.state)) item.to = at;
    items.counts[before] = itemsIn(items, before) - 1;
    items.counts[item.state] = itemsIn(items, item.state) + 1;
    if (isOver(step)) return;
    // A loop whose unfinished items all wait is waiting, too.
    const waiting = itemsIn(items, "WAITING");
    const isWaiting = waiting > 0 && waiting + countFinishedItems(items) === items.total;
    if (isWaiting && step.state !== "WAITING") step.pauses.push({ from: at, to: null, kind: item.waitsFor ?? "" });
    if (!isWaiting) endPause(step, at);
    step.state = isWaiting ? "WAITING" : "RUNNING";
  }

  #undo(step: StepView, event: Happened, data: Data, at: number): void {
    const index = typeof data.index === "number" ? data.index : null;
    const fault = (data.error ?? null) as Fault | null;
    const last = step.tries.findLast((it) => it.isUndo && it.index === index);
    const end = (how: Attempt["end"]) => {
      if (last?.to === null) Object.assign(last, { to: at, end: how, code: fault?.code ?? null });
    };
    switch (event.type) {
      case "step_compensation_started":
        step.tries.push({ ...makeAttempt(event, at, index), isUndo: true });
        break;
      case "step_compensated":
        end("succeeded");
        if (index === null || !step.items) step.state = "COMPENSATED";
        else {
          const item = itemOf(step.items, index);
          if (!item.isUndone) step.items.undone += 1;
          item.isUndone = true;
          if (step.items.undone === itemsIn(step.items, "SUCCEEDED")) step.state = "COMPENSATED";
        }
        break;
      case "step_compensation_progress":
        break;
      case "step_compensation_retry_scheduled":
      case "step_compensation_interrupted":
        end(fault ? "failed" : "interrupted");
        break;
      default:
        end("failed");
        step.isNotUndone = true;
    }
  }
}

/** Reads a progress report. The tool chooses the unit of the numbers. */
function progressOf(data: Data): StepView["progress"] {
  const { progress, total, message } = data;
  return {
    progress: Number(progress ?? 0),
    ...(total == null ? {} : { total: Number(total) }),
    ...(typeof message === "string" ? { message } : {}),
  };
}

/** Adds a progress report, an error or a text on stderr to the lines of a step. */
function addLine(step: StepView, event: Pick<Happened, "type" | "attempt" | "data">, data: Data, at: number): void {
  const line = lineOf(event, data, at);
  if (!line) return;
  step.lines ??= new Lines();
  step.lines.add(line);
}

/** Returns the text of an event for the logs. Null if the event has none. */
export function lineOf({ type, attempt }: Pick<Happened, "type" | "attempt">, data: Data, at: number): Line | null {
  const isProgress = type.endsWith("_progress");
  const fault = (data.error ?? null) as Fault | null;
  const stderr = typeof data.stderr === "string" ? data.stderr : null;
  if (!isProgress && !fault && stderr === null) return null;
  const text = isProgress ? progressText(data) : fault ? `${fault.code}: ${fault.message}` : stderr!;
  return { at, attempt: attempt ?? 1, index: typeof data.index === "number" ? data.index : null, text, isBad: fault !== null };
}

/** Returns a progress report as text: the amount, and the message. */
function progressText(data: Data): string {
  const it = progressOf(data);
  const far = it?.total === undefined ? String(it?.progress) : `${it.progress} of ${it.total}`;
  return it?.message ? `${far}  ${it.message}` : far;
}

function makeAttempt(event: Happened, at: number, index: number | null): Attempt {
  const isSleep = typeof ((event.data ?? {}) as Data).until === "string";
  return { number: event.attempt ?? 1, index, from: at, to: null, end: "running", code: null, isUndo: false, isSleep };
}

function ended(step: StepView, end: Attempt["end"], at: number, error: Fault | null, index: number | null): void {
  for (let n = step.tries.length - 1; n >= 0; n -= 1) {
    const it = step.tries[n]!;
    if (it.index !== index || it.isUndo) continue;
    if (it.to === null) Object.assign(it, { to: at, end, code: error?.code ?? null });
    return;
  }
}

function endPause(step: StepView, at: number): void {
  const last = step.pauses.at(-1);
  if (last?.to === null) last.to = at;
}

function finishStep(step: StepView, state: StepState, at: number): void {
  step.state = state;
  step.to = at;
  step.progress = null;
  step.waitsFor = null;
  endPause(step, at);
}

/**
 * Returns for how long a step has worked and waited until `now`, in milliseconds. A delay before a retry counts as
 * neither, except in loops, where it counts as work.
 */
export function spentBy(step: StepView, now: number): { worked: number; waited: number } {
  const sum = (times: readonly { from: number; to: number | null }[]) => times.reduce((sum, { from, to }) => sum + Math.max(0, (to ?? now) - from), 0);
  const paused = sum(step.pauses.filter((pause) => pause.kind !== "retry"));
  const waited = paused + (step.items ? 0 : sum(step.tries.filter((attempt) => attempt.isSleep)));
  if (!step.items) return { worked: sum(step.tries.filter((attempt) => !attempt.isUndo && !attempt.isSleep)), waited };
  const all = step.from === null ? 0 : (step.to ?? now) - step.from;
  return { worked: Math.max(0, all - waited), waited };
}

/** Returns the duration of a step as text. Empty if the step has not started. */
export function durationText(step: StepView, now: number): string {
  return step.from === null ? "" : spentText(spentBy(step, now));
}

/** Computes the state of an execution after its first `length` events. */
export function foldTo(ids: readonly string[], events: readonly Happened[], length: number): Fold {
  const fold = new Fold(ids);
  for (const event of events) {
    if (event.seq > length) break;
    fold.apply(event);
  }
  return fold;
}

export function isOver(step: StepView): boolean {
  return OVER.has(step.state);
}
