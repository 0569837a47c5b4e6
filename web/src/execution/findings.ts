/** The server's findings about an execution. The page computes no reasons itself. */

import { useEffect, useRef, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { Cell, useCell } from "../api/cell";
import { ExecutionFindings, type Finding, type FindingKind, type Json } from "../api/generated";
import { isFields } from "../api/json";
import type { Fold } from "./fold";
import type { Story } from "./story";

/** Poll interval of findings while time or other executions can change them, in milliseconds. */
const POLL_INTERVAL = 2_000;
/**
 * Delay between the last move of the slider and the query for findings, in milliseconds. After a new event, the
 * page also waits for this time, so that one query covers many events.
 */
const REFRESH_DELAY = 250;

const NONE: readonly Finding[] = [];
/** Cells that never change, for a component without an execution. */
const NO_CHANGES = new Cell(0);
const NO_POSITION = new Cell<number | null>(null);

/** Returns the name of the step or item that a finding is about, such as `send[3]`. */
export function placeOf({ stepId, index }: { stepId: string | null; index: number | null }): string {
  return stepId === null ? "" : stepId + (index === null ? "" : `[${index}]`);
}

export function ofKind(findings: readonly Finding[], ...kinds: FindingKind[]): Finding[] {
  return findings.filter((finding) => kinds.includes(finding.kind));
}

/** Returns the findings about a step. With an index, returns only the findings about the item with that index. */
export function about(findings: readonly Finding[], stepId: string, index: number | null = null): Finding[] {
  return findings.filter((finding) => finding.stepId === stepId && (index === null || finding.index === index));
}

/** Returns whether a finding is a failure of a step, an execution or a compensation. */
export function isFailure({ kind, severity }: Finding): boolean {
  return kind === "FAILURE" || (kind === "WARNING" && severity === "ERROR");
}

/** Returns whether a finding is a wait for a person. */
export function needsPerson(finding: Finding): boolean {
  return finding.kind === "WAIT" && finding.remedies.some(({ mutation }) => mutation !== null && PERSON_MUTATIONS.has(mutation));
}

const PERSON_MUTATIONS: ReadonlySet<string> = new Set(["approveStep", "settleStep", "signalExecution", "resumeExecution"]);

/** Returns the findings at the shown time. The old findings stay until the new ones have arrived. */
export function useFindings(story: Story | null): readonly Finding[] {
  useCell(story?.version ?? NO_CHANGES);
  const scrub = useCell(story?.scrub ?? NO_POSITION);
  const settled = useCell(story?.settled ?? NO_CHANGES);
  const atSeq = useRestedPosition(scrub);
  const isLive = story !== null && !story.live.isOver && atSeq === null;
  const asked = useAsk(ExecutionFindings, story === null ? null : { id: story.about.executionId, atSeq }, isLive ? POLL_INTERVAL : undefined);
  const mark = story === null ? "" : `${settled} ${findingsKey(story.live)}`;
  const shown = useRef(mark);
  useEffect(() => {
    if (mark === shown.current) return;
    const timer = setTimeout(() => {
      shown.current = mark;
      asked.refresh();
    }, REFRESH_DELAY);
    return () => clearTimeout(timer);
  }, [mark]);
  return asked.data?.execution?.findings ?? NONE;
}

/** Returns the position of the slider after it has stopped moving. */
function useRestedPosition(at: number | null): number | null {
  const [rested, setRested] = useState(at);
  useEffect(() => {
    if (at === null) return setRested(null);
    const timer = setTimeout(() => setRested(at), REFRESH_DELAY);
    return () => clearTimeout(timer);
  }, [at]);
  return at === null ? null : rested;
}

/** Returns a text that changes when an event may have changed the findings. */
function findingsKey(fold: Fold): string {
  const counts = (["FAILED", "WAITING", "RETRYING", "SKIPPED", "COMPENSATED", "CANCELLED"] as const).map((state) => fold.count(state));
  return [fold.state, ...counts, fold.waiting, fold.counts.notUndone].join(" ");
}

/** Returns the whole error message from the log. A finding contains only the line with the cause. */
export function errorMessageOf(story: Story, { causeSeq, causeExecutionId }: Finding): string | null {
  if (causeSeq === null || (causeExecutionId !== null && causeExecutionId !== story.about.executionId)) return null;
  const data = story.events[causeSeq - 1]?.data;
  const error = isFields(data) ? data.error : null;
  return isFields(error) && typeof error.message === "string" ? error.message : null;
}

/** Types of events that contain the parameters of a step's call. */
const CALL_EVENTS: ReadonlySet<string> = new Set(["step_waiting", "step_started", "step_checked"]);

/** A call that needs a person's approval or decision. */
export interface AskedCall {
  toolName: string;
  parameters: Json | undefined;
  /** The template of the loop's list. The call is made once for each item. */
  forEach?: string | null;
}

/** Returns the call that a step or item will make after its approval, or its last call. */
export function askedCall(story: Story, name: string): AskedCall | null {
  const [, stepId = "", item] = /^([^[]*)(?:\[(\d+)\])?$/.exec(name) ?? [];
  const step = story.stepOf.get(stepId);
  if (!step || step.plan !== null) return null;
  const event = story.events.findLast(
    ({ type, stepId: id, data }) =>
      id === stepId && CALL_EVENTS.has(type) && isFields(data) && data.parameters !== undefined && (item === undefined || data.index === Number(item)),
  );
  const parameters = isFields(event?.data) ? event.data.parameters : undefined;
  const forEach = item === undefined ? step.forEach : null;
  return { toolName: step.toolName, forEach, parameters: parameters ?? (item === undefined ? story.live.step(stepId)?.parameters : undefined) };
}
