/** Compares two versions of a plan. */

import type { Json } from "../api/generated";
import { isFields, print } from "../api/json";
import { idOf } from "./draft";

export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
}

export interface StepDifference {
  id: string;
  kind: "same" | "changed" | "gone" | "new";
  lines: Line[];
}

/** Maximum number of lines of a step that are compared one by one. */
const MAX_COMPARED_LINES = 600;

/** Returns the lines of each step of a plan. */
function linesOf(plan: Json): Map<string, string[]> {
  const steps = isFields(plan) && Array.isArray(plan.tools) ? plan.tools.filter(isFields) : [];
  return new Map(steps.map((it) => [idOf(it), print(it, 2).split("\n")]));
}

/** Compares two versions step by step. Lists the steps of the later version in their sequence, and then the removed steps. */
export function difference(before: Json, after: Json): StepDifference[] {
  const [old, now] = [linesOf(before), linesOf(after)];
  const steps: StepDifference[] = [];
  for (const [id, lines] of now) {
    const was = old.get(id);
    if (!was) steps.push({ id, kind: "new", lines: lines.map((it) => ({ kind: "new", text: it })) });
    else if (was.join("\n") === lines.join("\n")) steps.push({ id, kind: "same", lines: [] });
    else steps.push({ id, kind: "changed", lines: compare(was, lines) });
  }
  for (const [id, lines] of old) {
    if (!now.has(id)) steps.push({ id, kind: "gone", lines: lines.map((it) => ({ kind: "gone", text: it })) });
  }
  return steps;
}

/** Compares lines by their longest common subsequence. */
export function compare(before: readonly string[], after: readonly string[]): Line[] {
  const gone = (it: string): Line => ({ kind: "gone", text: it });
  const fresh = (it: string): Line => ({ kind: "new", text: it });
  if (before.length > MAX_COMPARED_LINES || after.length > MAX_COMPARED_LINES) return [...before.map(gone), ...after.map(fresh)];
  const width = after.length + 1;
  const longest = new Uint16Array((before.length + 1) * width);
  for (let a = before.length - 1; a >= 0; a -= 1) {
    for (let b = after.length - 1; b >= 0; b -= 1) {
      longest[a * width + b] =
        before[a] === after[b]
          ? longest[(a + 1) * width + b + 1]! + 1
          : Math.max(longest[(a + 1) * width + b]!, longest[a * width + b + 1]!);
    }
  }
  const lines: Line[] = [];
  let [a, b] = [0, 0];
  while (a < before.length || b < after.length) {
    if (a < before.length && b < after.length && before[a] === after[b]) {
      lines.push({ kind: "same", text: before[a]! });
      a += 1;
      b += 1;
    } else if (b >= after.length || (a < before.length && longest[(a + 1) * width + b]! >= longest[a * width + b + 1]!)) {
      lines.push(gone(before[a]!));
      a += 1;
    } else {
      lines.push(fresh(after[b]!));
      b += 1;
    }
  }
  return lines;
}
