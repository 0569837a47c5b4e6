/** The items of a loop, as the events tell of them. */

import type { StepState } from "../api/generated";

/** One item of a loop. */
export interface Item {
  state: StepState;
  waitsFor: string | null;
  waitName: string | null;
  isUndone: boolean;
  from: number | null;
  to: number | null;
  /** The execution that it began last, where it executes a plan. */
  child: string | null;
}

/** The items of a loop, and how many of them are where. */
export interface Items {
  total: number;
  counts: Partial<Record<StepState, number>>;
  /** Those that had their turn. */
  each: Map<number, Item>;
  undone: number;
}

/** How many items are in a state. */
export function itemsIn(items: Items, ...states: StepState[]): number {
  return states.reduce((sum, it) => sum + (items.counts[it] ?? 0), 0);
}

/** How many items are over. */
export function itemsOver(items: Items): number {
  return itemsIn(items, "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED");
}

/** How many items of a loop are over, in few letters. */
export function itemsText(items: Items): string {
  return `${itemsOver(items).toLocaleString("en")} / ${items.total.toLocaleString("en")}`;
}

/** How much of the loops that run is over, counted in steps. */
export function partlyOver(steps: Iterable<{ items: Items | null; to: number | null }>): number {
  let sum = 0;
  for (const { items, to } of steps) if (items && to === null && items.total > 0) sum += itemsOver(items) / items.total;
  return sum;
}

/** How many items are over of loops that run, in words; nothing where none does. */
export function itemsSaid(steps: Iterable<{ items: Items | null; to: number | null }>): string {
  let [over, total] = [0, 0];
  for (const { items, to } of steps) {
    if (!items || to !== null) continue;
    over += itemsOver(items);
    total += items.total;
  }
  return total === 0 ? "" : `${over.toLocaleString("en")} of ${total.toLocaleString("en")} items`;
}

/** A loop of which nothing has begun. */
export function loop(total: number): Items {
  return { total, counts: { PENDING: total }, each: new Map(), undone: 0 };
}

/** The item at a place, as it stands. */
export function itemOf(items: Items, index: number): Item {
  let item = items.each.get(index);
  if (!item) items.each.set(index, (item = { state: "PENDING", waitsFor: null, waitName: null, isUndone: false, from: null, to: null, child: null }));
  return item;
}
