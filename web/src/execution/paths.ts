/** Sets of steps that depend on the execution order: the critical path, and the steps that a retry repeats. */

import type { Fold, StepView } from "./fold";

/** Returns the steps on the critical path. If one of them were faster, the execution would finish sooner. */
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
  // If two steps ended in the same millisecond, perhaps the later step waited for the earlier step.
  for (const step of steps) if (!found || (step.to ?? 0) >= (found.to ?? 0)) found = step;
  return found;
}

/**
 * Returns the steps that a retry from a step runs again, by the server's rules. These are that step and all later steps
 * in execution order. The retry also repeats each earlier step that neither succeeded nor was left out, whose
 * compensation has started, or that depends on such a step.
 */
export function stepsToRepeatFrom(fold: Fold, dependsOn: ReadonlyMap<string, readonly string[]>, from: string): string[] {
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
 * Returns the steps that a retry of the failed steps runs again: those that did not succeed, and those whose
 * compensation has started. Outputs of `settled` steps are reused, because a person knows that their calls succeeded.
 */
export function stepsToRepeatAfterFailure(fold: Fold, settled: ReadonlySet<string> = NONE): string[] {
  return fold.steps.filter((step) => ((step.state !== "SUCCEEDED" && step.state !== "COMPENSATED") || isUndone(step)) && !settled.has(step.id)).map((step) => step.id);
}

const NONE: ReadonlySet<string> = new Set();

/** Returns true if the outcome of a call is unknown. Perhaps a person has settled such a call. */
export function hasUnknown(fold: Fold): boolean {
  return fold.steps.some((step) => step.state === "FAILED" && step.tries.at(-1)?.code === "tool.outcome_unknown");
}

function isUndone(step: StepView): boolean {
  return step.tries.some((attempt) => attempt.isUndo);
}
