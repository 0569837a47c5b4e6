/**
 * What happened to an execution, and why, as the server says it. The page shows these findings, and writes no reasons of
 * its own.
 */

import { useEffect, useRef, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { Cell, useCell } from "../api/cell";
import { ExecutionFindings, type Finding, type FindingKind, type Json } from "../api/generated";
import { isFields } from "../api/json";
import type { Fold } from "./fold";
import type { Story } from "./story";

/** How often findings are asked for again while time or other executions may change them, in milliseconds. */
const EVERY = 2_000;
/** How long the slider must rest, and how long events may gather, before findings are asked for. */
const REST = 250;

const NONE: readonly Finding[] = [];
/** Cells of an execution that is not there. */
const NEVER = new Cell(0);
const NOWHERE = new Cell<number | null>(null);

/** Names what a finding is about: a step, or an item of one. */
export function placeOf({ stepId, index }: { stepId: string | null; index: number | null }): string {
  return stepId === null ? "" : stepId + (index === null ? "" : `[${index}]`);
}

export function ofKind(findings: readonly Finding[], ...kinds: FindingKind[]): Finding[] {
  return findings.filter((finding) => kinds.includes(finding.kind));
}

/** The findings about a step, or with an index about one of its items. */
export function about(findings: readonly Finding[], stepId: string, index: number | null = null): Finding[] {
  return findings.filter((finding) => finding.stepId === stepId && (index === null || finding.index === index));
}

/** Whether a step, the execution or a compensation ended badly. */
export function isFailure({ kind, severity }: Finding): boolean {
  return kind === "FAILURE" || (kind === "WARNING" && severity === "ERROR");
}

/** Whether a person must act before it goes on. */
export function needsPerson(finding: Finding): boolean {
  return finding.kind === "WAIT" && finding.remedies.some(({ mutation }) => mutation !== null && PERSONAL.has(mutation));
}

const PERSONAL: ReadonlySet<string> = new Set(["approveStep", "settleStep", "signalExecution", "resumeExecution"]);

/** The findings at the moment that is shown. Those of before stay until the next are there. */
export function useFindings(story: Story | null): readonly Finding[] {
  useCell(story?.version ?? NEVER);
  const scrub = useCell(story?.scrub ?? NOWHERE);
  const settled = useCell(story?.settled ?? NEVER);
  const atSeq = useRested(scrub);
  const isLive = story !== null && !story.live.isOver && atSeq === null;
  const asked = useAsk(ExecutionFindings, story === null ? null : { id: story.about.executionId, atSeq }, isLive ? EVERY : undefined);
  const mark = story === null ? "" : `${settled} ${markOf(story.live)}`;
  const shown = useRef(mark);
  useEffect(() => {
    if (mark === shown.current) return;
    const timer = setTimeout(() => {
      shown.current = mark;
      asked.refresh();
    }, REST);
    return () => clearTimeout(timer);
  }, [mark]);
  return asked.data?.execution?.findings ?? NONE;
}

/** The place of the slider, once it rests. */
function useRested(at: number | null): number | null {
  const [rested, setRested] = useState(at);
  useEffect(() => {
    if (at === null) return setRested(null);
    const timer = setTimeout(() => setRested(at), REST);
    return () => clearTimeout(timer);
  }, [at]);
  return at === null ? null : rested;
}

/** Changes with whatever may change the findings. */
function markOf(fold: Fold): string {
  const counts = (["FAILED", "WAITING", "RETRYING", "SKIPPED", "COMPENSATED", "CANCELLED"] as const).map((state) => fold.count(state));
  return [fold.state, ...counts, fold.waiting, fold.counts.notUndone].join(" ");
}

/** The whole message of an error that a finding tells the cause of, as the log has it. */
export function traceOf(story: Story, { causeSeq, causeExecutionId }: Finding): string | null {
  if (causeSeq === null || (causeExecutionId !== null && causeExecutionId !== story.about.executionId)) return null;
  const data = story.events[causeSeq - 1]?.data;
  const error = isFields(data) ? data.error : null;
  return isFields(error) && typeof error.message === "string" ? error.message : null;
}

/** The events that say how a step calls its tool. */
const CALLS: ReadonlySet<string> = new Set(["step_waiting", "step_started", "step_checked"]);

/** A call that a person is asked about. */
export interface AskedCall {
  toolName: string;
  parameters: Json | undefined;
  /** The list that a loop makes the call for each item of. */
  forEach?: string | null;
}

/** The call that a step, or an item of one, makes once it is approved or made last, as the log has it. */
export function askedCall(story: Story, name: string): AskedCall | null {
  const [, stepId = "", item] = /^([^[]*)(?:\[(\d+)\])?$/.exec(name) ?? [];
  const step = story.stepOf.get(stepId);
  if (!step || step.plan !== null) return null;
  const event = story.events.findLast(
    ({ type, stepId: id, data }) =>
      id === stepId && CALLS.has(type) && isFields(data) && data.parameters !== undefined && (item === undefined || data.index === Number(item)),
  );
  const parameters = isFields(event?.data) ? event.data.parameters : undefined;
  const forEach = item === undefined ? step.forEach : null;
  return { toolName: step.toolName, forEach, parameters: parameters ?? (item === undefined ? story.live.step(stepId)?.parameters : undefined) };
}
