/**
 * An execution as it stands after some of its events: the log is the only truth, here too. The same fold gives the
 * present and, with fewer events, every moment of the past.
 */

import type { ExecutionState, Happened, Json, StepState } from "../api/generated";

type Data = Record<string, Json | undefined>;

export interface Fault {
  code: string;
  message: string;
  retryable: boolean;
}

/** One call, from its beginning to its end. */
export interface Attempt {
  number: number;
  index: number | null;
  from: number;
  to: number | null;
  end: "running" | "succeeded" | "failed" | "interrupted" | "cancelled";
  error: Fault | null;
  isUndo: boolean;
}

/** A time in which a step waits for something. */
export interface Pause {
  from: number;
  to: number | null;
  kind: string;
}

export interface Items {
  total: number;
  begun: number;
  done: number;
  failed: number;
}

export interface StepView {
  readonly id: string;
  state: StepState;
  attempts: number;
  tries: Attempt[];
  pauses: Pause[];
  from: number | null;
  to: number | null;
  error: Fault | null;
  warnings: string[];
  waitsFor: string | null;
  waitName: string | null;
  until: string | null;
  progress: { progress: number; total?: number; message?: string } | null;
  skipReason: string | null;
  isReused: boolean;
  items: Items | null;
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
    error: null,
    warnings: [],
    waitsFor: null,
    waitName: null,
    until: null,
    progress: null,
    skipReason: null,
    isReused: false,
    items: null,
    child: null,
    parameters: undefined,
    output: undefined,
  };
}

export class Fold {
  readonly steps: StepView[];
  /** How many events it is computed from. */
  length = 0;
  /** When the last of them was recorded. */
  at = 0;
  createdAt: number | null = null;
  startedAt: number | null = null;
  finishedAt: number | null = null;
  node: string | null = null;
  signals: string[] = [];
  cancelReason: string | null = null;
  #finished: ExecutionState | null = null;
  #isPaused = false;
  #isUndoing = false;
  #counts: Partial<Record<StepState, number>> = {};
  #places: Map<string, StepView>;

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
    };
  }

  get state(): ExecutionState {
    if (this.#finished) return this.#finished;
    if (this.#isUndoing) return "COMPENSATING";
    if (this.#isPaused) return "PAUSED";
    if (this.startedAt === null) return "PENDING";
    const waits = this.count("WAITING") + this.count("RETRYING");
    return waits > 0 && this.count("RUNNING") === 0 && !this.#canGoOn ? "WAITING" : "IN_PROGRESS";
  }

  /** Whether a step was let go on and has not begun yet. */
  get #canGoOn(): boolean {
    return this.steps.some((it) => it.state === "PENDING" && it.from !== null);
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
      case "cancel_requested":
        this.cancelReason = typeof data.reason === "string" ? data.reason : "";
        break;
      case "signal_received":
        if (typeof data.name === "string") this.signals.push(data.name);
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
        step.until = typeof data.until === "string" ? data.until : null;
        goOn(step, at);
        if (typeof data.items === "number") {
          step.items = { total: data.items, begun: 0, done: 0, failed: 0 };
        } else {
          step.tries.push(begun(event, at, null));
          step.parameters = data.parameters;
          step.warnings = (data.warnings ?? []) as string[];
        }
        if (typeof data.childExecutionId === "string") step.child = data.childExecutionId;
        break;
      case "step_succeeded":
        ended(step, "succeeded", at, null, null);
        step.output = data.output;
        step.isReused = data.cached === true;
        over(step, "SUCCEEDED", at);
        break;
      case "step_progress":
        step.progress = progressOf(data);
        break;
      case "step_checked":
        step.parameters = data.parameters;
        step.warnings = (data.warnings ?? []) as string[];
        break;
      case "step_retry_scheduled":
      case "step_interrupted":
        ended(step, fault ? "failed" : "interrupted", at, fault, null);
        step.state = "RETRYING";
        step.error = fault ?? step.error;
        step.until = typeof data.until === "string" ? data.until : null;
        if (fault) step.pauses.push({ from: at, to: null, kind: "retry" });
        break;
      case "step_failed":
        ended(step, "failed", at, fault, null);
        step.error = fault;
        over(step, "FAILED", at);
        break;
      case "step_skipped":
        step.skipReason = String(data.reason ?? "");
        over(step, "SKIPPED", at);
        break;
      case "step_waiting":
        ended(step, "failed", at, fault, null);
        step.state = "WAITING";
        step.from ??= at;
        step.waitsFor = String(data.for ?? "");
        step.waitName = typeof data.name === "string" ? data.name : null;
        step.until = typeof data.until === "string" ? data.until : null;
        step.error = fault ?? step.error;
        if (data.parameters !== undefined) step.parameters = data.parameters;
        goOn(step, at);
        step.pauses.push({ from: at, to: null, kind: step.waitsFor });
        break;
      case "step_approved":
        step.state = "PENDING";
        step.waitsFor = null;
        goOn(step, at);
        break;
      case "step_cancelled":
        ended(step, "cancelled", at, null, null);
        over(step, "CANCELLED", at);
        break;
    }
  }

  #item(step: StepView, event: Happened, data: Data, at: number): void {
    const index = data.index as number;
    const fault = (data.error ?? null) as Fault | null;
    const items = (step.items ??= { total: index + 1, begun: 0, done: 0, failed: 0 });
    switch (event.type) {
      case "step_started":
        if ((event.attempt ?? 1) === 1) items.begun += 1;
        step.tries.push(begun(event, at, index));
        break;
      case "step_succeeded":
        items.done += 1;
        ended(step, "succeeded", at, null, index);
        break;
      case "step_failed":
        items.failed += 1;
        ended(step, "failed", at, fault, index);
        break;
      case "step_retry_scheduled":
      case "step_interrupted":
        ended(step, fault ? "failed" : "interrupted", at, fault, index);
        break;
      case "step_waiting":
        ended(step, "failed", at, fault, index);
        step.waitsFor = String(data.for ?? "");
        step.waitName = typeof data.name === "string" ? data.name : null;
        break;
      case "step_cancelled":
        ended(step, "cancelled", at, null, index);
        break;
    }
  }

  #undo(step: StepView, event: Happened, data: Data, at: number): void {
    const last = step.tries.at(-1);
    switch (event.type) {
      case "step_compensation_started":
        step.tries.push({ ...begun(event, at, null), isUndo: true });
        break;
      case "step_compensated":
        if (last?.to === null) Object.assign(last, { to: at, end: "succeeded" });
        step.state = "COMPENSATED";
        break;
      case "step_compensation_progress":
        break;
      default:
        if (last?.to === null) Object.assign(last, { to: at, end: "failed", error: (data.error ?? null) as Fault | null });
    }
  }
}

/** A tool may count in whatever numbers it likes. */
function progressOf(data: Data): StepView["progress"] {
  const { progress, total, message } = data;
  return {
    progress: Number(progress ?? 0),
    ...(total == null ? {} : { total: Number(total) }),
    ...(typeof message === "string" ? { message } : {}),
  };
}

function begun(event: Happened, at: number, index: number | null): Attempt {
  return { number: event.attempt ?? 1, index, from: at, to: null, end: "running", error: null, isUndo: false };
}

function ended(step: StepView, end: Attempt["end"], at: number, error: Fault | null, index: number | null): void {
  for (let n = step.tries.length - 1; n >= 0; n -= 1) {
    const it = step.tries[n]!;
    if (it.index !== index || it.isUndo) continue;
    if (it.to === null) Object.assign(it, { to: at, end, error });
    return;
  }
}

function goOn(step: StepView, at: number): void {
  const last = step.pauses.at(-1);
  if (last?.to === null) last.to = at;
}

function over(step: StepView, state: StepState, at: number): void {
  step.state = state;
  step.to = at;
  step.progress = null;
  step.waitsFor = null;
  step.until = null;
  goOn(step, at);
}

/** The state of an execution after its first `length` events. */
export function foldTo(ids: readonly string[], events: readonly Happened[], length: number): Fold {
  const fold = new Fold(ids);
  for (const event of events) {
    if (event.seq > length) break;
    fold.apply(event);
  }
  return fold;
}

/** The steps without whose time the execution would have been over sooner. */
export function criticalPath(fold: Fold, dependsOn: ReadonlyMap<string, readonly string[]>): Set<string> {
  const path = new Set<string>();
  let at = latest(fold.steps.filter((it) => it.to !== null && it.tries.length + it.pauses.length > 0));
  while (at && !path.has(at.id)) {
    path.add(at.id);
    const before = (dependsOn.get(at.id) ?? []).map((id) => fold.step(id));
    at = latest(before.filter((it) => it !== undefined && it.to !== null && it.tries.length + it.pauses.length > 0) as StepView[]);
  }
  return path;
}

function latest(steps: readonly StepView[]): StepView | undefined {
  let found: StepView | undefined;
  for (const step of steps) if (!found || (step.to ?? 0) > (found.to ?? 0)) found = step;
  return found;
}

export function isOver(step: StepView): boolean {
  return OVER.has(step.state);
}
