/** What an execution says about the order of its steps: which of them took its time, and which are done again. */

import type { Fold, StepView } from "./fold";

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
  // Of two that ended within the same millisecond the later one may have waited for the earlier.
  for (const step of steps) if (!found || (step.to ?? 0) >= (found.to ?? 0)) found = step;
  return found;
}

/**
 * The steps that a retry from a step does again, as the server has it: that step and the steps behind it in the order
 * of the plan, and before it each step that did not succeed, was undone, or depends on such a step.
 */
export function againFrom(fold: Fold, dependsOn: ReadonlyMap<string, readonly string[]>, from: string): string[] {
  const stays = new Set<string>();
  for (const step of fold.steps) {
    if (step.id === from) break;
    const wasUndone = isUndone(step);
    const isSame = step.state === "SUCCEEDED" || (step.state === "SKIPPED" && step.isLeftOut);
    if (isSame && !wasUndone && (dependsOn.get(step.id) ?? []).every((it) => stays.has(it))) stays.add(step.id);
  }
  return fold.steps.filter((it) => !stays.has(it.id)).map((it) => it.id);
}

/**
 * The steps that a retry of the failed steps does again: those that did not succeed, and those that were undone. The
 * outputs of `settled` steps are reused, because a person knows that their calls succeeded.
 */
export function failedSteps(fold: Fold, settled: ReadonlySet<string> = NONE): string[] {
  return fold.steps.filter((step) => ((step.state !== "SUCCEEDED" && step.state !== "COMPENSATED") || isUndone(step)) && !settled.has(step.id)).map((step) => step.id);
}

const NONE: ReadonlySet<string> = new Set();

/** Whether a call ended without an answer, so that a person may have settled it. */
export function hasUnknown(fold: Fold): boolean {
  return fold.steps.some((step) => step.state === "FAILED" && step.tries.at(-1)?.code === "tool.outcome_unknown");
}

function isUndone(step: StepView): boolean {
  return step.tries.some((attempt) => attempt.isUndo);
}
