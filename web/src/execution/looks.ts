/** Colours and texts of steps in the graph. */

import type { Gate, Look } from "../graph/scene";
import { formatDuration, spentText } from "../ui/time";
import { plain } from "../ui/plain";
import { TONE, WORD } from "../ui/state";
import { spentBy, type StepView } from "./fold";
import { itemsIn, finishedItemsShort, type Item } from "./items";
import type { Step } from "./story";

export function lookOf(step: Step, view: StepView | undefined, now: number): Look {
  return {
    tone: view ? toneOf(view) : "idle",
    title: step.stepId,
    subtitle: step.plan ? "sub-plan" : step.toolName === step.stepId ? "" : step.toolName,
    note: noteOf(step, view, now),
    isStack: step.forEach !== null || step.plan !== null,
    isDimmed: false,
    gates: gatesOf(step, view),
  };
}

/** Returns the gates of a step. An approval is a gate only until the step waits for it. */
function gatesOf(step: Step, view: StepView | undefined): Gate[] {
  const gates: Gate[] = [];
  if (step.when) gates.push({ kind: "condition", text: plain(step.when) });
  const isToCome = !view || (view.state === "PENDING" && view.from === null);
  if (step.requiresApproval && isToCome) gates.push({ kind: "approval", text: "approval" });
  return gates;
}

/** Returns how an item of a loop looks. */
export function itemLook(step: Step, index: number, item: Item | undefined): Look {
  const note = item?.waitsFor ? "waits" : item?.from != null && item.to !== null ? formatDuration(item.to - item.from) : "";
  return {
    tone: item?.isUndone ? "undone" : TONE[item?.state ?? "PENDING"],
    title: String(index),
    subtitle: "",
    note,
    isStack: step.plan !== null,
    isDimmed: false,
  };
}

/** Returns the colour of a step. A step whose compensation failed looks like a failed step. */
export function toneOf(view: StepView): string {
  return view.isNotUndone ? "bad" : TONE[view.state];
}

/** Returns the state of a step in words. */
export function wordOf(view: StepView): string {
  return view.isNotUndone ? `${WORD[view.state]}, not undone` : WORD[view.state];
}

function noteOf(step: Step, view: StepView | undefined, now: number): string {
  if (!view || view.state === "PENDING") {
    return step.forEach ? "for each" : "";
  }
  if (view.isNotUndone) return "not undone";
  if (view.items && view.to === null) {
    const waiting = itemsIn(view.items, "WAITING");
    return `${finishedItemsShort(view.items)}${waiting > 0 ? `, ${waiting} wait` : ""}`;
  }
  if (view.state === "WAITING") return view.waitName ?? view.waitsFor ?? "";
  if (view.state === "SKIPPED") return "";
  if (view.isReused) return "reused";
  const { progress } = view;
  if (progress && view.to === null) {
    return progress.total ? `${Math.round((progress.progress / progress.total) * 100)} %` : String(progress.progress);
  }
  // The node has space for only one duration, so it shows the duration of work if there is one.
  const { worked, waited } = spentBy(view, now);
  const time = view.from === null ? "" : worked > 0 ? formatDuration(worked) : spentText({ worked, waited });
  if (view.items) return `×${view.items.total}  ${time}`;
  return view.attempts > 1 ? `${view.attempts}×  ${time}` : time;
}
