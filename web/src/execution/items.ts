/** The items of a loop, computed from events. */

import type { StepState } from "../api/generated";

/** An item of a loop. */
export interface Item {
  state: StepState;
  waitsFor: string | null;
  waitName: string | null;
  isUndone: boolean;
  from: number | null;
  to: number | null;
  /** Id of the item's newest child execution, if the step executes a plan. */
  child: string | null;
}

/** The items of a loop, counted by state. */
export interface Items {
  total: number;
  counts: Partial<Record<StepState, number>>;
  /** Items that have an event, by index. */
  each: Map<number, Item>;
  undone: number;
}

/** Returns the number of items in these states. */
export function itemsIn(items: Items, ...states: StepState[]): number {
  return states.reduce((sum, it) => sum + (items.counts[it] ?? 0), 0);
}

/** Returns the number of finished items. */
export function countFinishedItems(items: Items): number {
  return itemsIn(items, "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED");
}

/** Returns the number of finished items in short form, such as `3 / 10`. */
export function finishedItemsShort(items: Items): string {
  return `${countFinishedItems(items).toLocaleString("en")} / ${items.total.toLocaleString("en")}`;
}

/** Returns the finished part of all running loops. A whole loop counts as 1. */
export function finishedLoopParts(steps: Iterable<{ items: Items | null; to: number | null }>): number {
  let sum = 0;
  for (const { items, to } of steps) if (items && to === null && items.total > 0) sum += countFinishedItems(items) / items.total;
  return sum;
}

/** Returns the number of finished items of all running loops, in words. Empty if no loop runs. */
export function finishedItemsText(steps: Iterable<{ items: Items | null; to: number | null }>): string {
  let [over, total] = [0, 0];
  for (const { items, to } of steps) {
    if (!items || to !== null) continue;
    over += countFinishedItems(items);
    total += items.total;
  }
  return total === 0 ? "" : `${over.toLocaleString("en")} of ${total.toLocaleString("en")} items`;
}

/** Returns a loop whose items have not started. */
export function loop(total: number): Items {
  return { total, counts: { PENDING: total }, each: new Map(), undone: 0 };
}

/** Returns the item with this index. Creates it as pending if it is missing. */
export function itemOf(items: Items, index: number): Item {
  let item = items.each.get(index);
  if (!item) items.each.set(index, (item = { state: "PENDING", waitsFor: null, waitName: null, isUndone: false, from: null, to: null, child: null }));
  return item;
}
