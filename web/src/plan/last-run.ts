/** The calls of a plan's last execution that another execution would repeat. */

import { ask } from "../api/client";
import { LastRuns, RepeatedCalls } from "../api/generated";
import type { Fields } from "../api/json";
import type { RepeatedCall } from "../execution/repeated";
import { idsOf } from "./draft";

export interface LastRun {
  executionId: string;
  calls: RepeatedCall[];
}

/**
 * Returns the calls with effects of the newest execution of any version of a plan, if steps of the draft make them
 * again. Returns null if there are none.
 */
export async function lastRun(requestId: string, steps: readonly Fields[], signal?: AbortSignal): Promise<LastRun | null> {
  const { executions } = await ask(LastRuns, { requestId }, signal);
  // Dry runs make no calls, so they do not count.
  const last = executions.nodes.find((run) => !run.dryRun);
  if (!last) return null;
  const { execution } = await ask(RepeatedCalls, { id: last.executionId, mode: "ALL", fromStep: null }, signal);
  const calls = (execution?.repeatedCalls ?? []).filter(makesCall(steps));
  return calls.length === 0 ? null : { executionId: last.executionId, calls };
}

/** Returns a function that tells whether one of the steps makes a call. Such a step has the same name, or calls the same tool. */
function makesCall(steps: readonly Fields[]): (call: RepeatedCall) => boolean {
  const ids = new Set(idsOf(steps));
  const tools = new Set(steps.map((step) => String(step.name ?? step.toolName ?? "")));
  return ({ stepId, toolName }) => ids.has(stepId) || tools.has(toolName) || tools.has(toolName.slice(toolName.indexOf(".") + 1));
}
