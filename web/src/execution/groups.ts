/**
 * Steps that can be opened in the graph: loops show their items, and steps with a sub-plan show its steps. Opened nodes
 * can contain further nodes to open. The URL names the open nodes: `each` is a loop, `each[3]` is an item, and
 * `each[3]/send` is a step of the sub-plan of that item.
 */

import { ApiError, ask } from "../api/client";
import { Cell } from "../api/cell";
import { returns } from "../api/connection";
import { PlanSteps, type LayoutDirection } from "../api/generated";
import type { Look } from "../graph/canvas";
import { queryLayout } from "../graph/drawn";
import { nest, openNodeSize, layoutRows, type Scene } from "../graph/scene";
import type { Fold, StepView } from "./fold";
import type { Item } from "./items";
import { itemLook, lookOf } from "./looks";
import { Story, type Step } from "./story";

/**
 * Maximum number of open nodes. The page subscribes to the executions in them, and the server allows 100 subscriptions
 * for each connection.
 */
export const MAX_OPEN_NODES = 90;
/** Maximum number of items of one loop in the graph. */
const MAX_DRAWN_ITEMS = 2_000;

/** A plan in the graph, and its execution if the execution has started. */
export interface Scope {
  /** Prefix of the names of this plan's steps. Empty for the outermost plan. */
  prefix: string;
  plan: { planId: string; tools: readonly Step[] };
  stepOf: ReadonlyMap<string, Step>;
  story: Story | null;
}

/** The step or item that a node's name stands for. */
export interface Spot {
  scope: Scope;
  step: Step;
  /** Index of the item. Null for a step. */
  index: number | null;
  /**
   * If this node stands for the previous or the next page of items, the index of the first item of that page. A click
   * on the node shows the page. Null for other nodes.
   */
  turnsTo: number | null;
}

/** The look of a node whose step is unknown. */
const UNKNOWN_LOOK: Look = { tone: "idle", title: "", subtitle: "", note: "", isStack: false, isDimmed: true };

interface Held {
  scope: Scope | null;
  /** Id of the execution whose steps are shown, or will be shown. */
  child: string | null;
  gone: AbortController;
  leave: () => void;
}

/** Polls for a child execution that a step is about to start: how many, and the delay between them in milliseconds. */
const CHILD_POLLS = { times: 100, pause: 100 };

/** Opens a child execution. Polls, because the parent's event can arrive before the child exists. */
async function openChildStory(id: string, signal: AbortSignal): Promise<Story | null> {
  for (let n = 0; n < CHILD_POLLS.times && !signal.aborted; n += 1) {
    const story = await Story.within(id, signal);
    if (story) return story;
    await new Promise((resolve) => setTimeout(resolve, CHILD_POLLS.pause));
  }
  return null;
}

/** Reads the names of open nodes from the URL. */
export function readOpenNodes(text: string): string[] {
  return text === "" ? [] : [...new Set(text.split(","))].slice(0, MAX_OPEN_NODES);
}

/** Opens or closes a node. Closing also closes the nodes inside. Returns null if too many nodes are open. */
export function toggleOpenNode(open: readonly string[], name: string): string[] | null {
  if (!open.includes(name)) return open.length < MAX_OPEN_NODES ? [...open, name] : null;
  return open.filter((it) => it !== name && !it.startsWith(`${name}/`) && !it.startsWith(`${name}[`));
}

/** The first drawn item of each loop, by the loop's name. Comes from the URL, and the selected item is always drawn. */
export type Pages = ReadonlyMap<string, number>;

export function readPages(text: string, selected: string): Pages {
  const pages = new Map<string, number>();
  const add = (name: string, at: number) => Number.isSafeInteger(at) && at >= 0 && pages.set(name, at - (at % MAX_DRAWN_ITEMS));
  for (const it of text === "" ? [] : text.split(",")) add(it.slice(0, it.lastIndexOf(":")), Number(it.slice(it.lastIndexOf(":") + 1)));
  for (const it of selected.matchAll(/\[(\d+)\]/g)) add(selected.slice(0, it.index), Number(it[1]));
  return pages;
}

/** Returns the text that stands for pages in the URL. */
export function pagesText(pages: Pages): string {
  return [...pages].filter(([, at]) => at > 0).map(([name, at]) => `${name}:${at}`).join(",");
}

export class Groups {
  /** Changes when the graph must be drawn again. */
  readonly version = new Cell(0);
  readonly failure = new Cell<ApiError | null>(null);
  readonly whole: Scope;
  #held = new Map<string, Held>();
  #open: readonly string[] = [];
  #pages: Pages = new Map();

  constructor(story: Story) {
    this.whole = { prefix: "", plan: story.about.plan, stepOf: story.stepOf, story };
  }

  /** Finds the step or item with this name. Returns null if a node around it is closed or not loaded yet. */
  find(name: string): Spot | null {
    const cut = name.lastIndexOf("/");
    const scope = cut < 0 ? this.whole : this.#held.get(name.slice(0, cut))?.scope;
    const [, id = "", number, more] = /^([^[\]]+)(?:\[(\d+)(-)?\])?$/.exec(name.slice(cut + 1)) ?? [];
    const step = scope?.stepOf.get(id);
    if (!scope || !step) return null;
    const index = number === undefined ? null : Number(number);
    return more ? { scope, step, index: null, turnsTo: index } : { scope, step, index, turnsTo: null };
  }

  /** Returns what a node shows when it is opened, or null if it cannot be opened. */
  kindOf({ step, index, turnsTo }: Spot): "items" | "plan" | null {
    if (turnsTo !== null) return null;
    if (step.forEach !== null && index === null) return "items";
    return step.plan === null ? null : "plan";
  }

  /** Returns the state of an execution in the graph, at present or at a time in the past. */
  foldOf(scope: Scope, past: number | null): Fold | null {
    if (scope === this.whole) return scope.story!.fold;
    return past === null ? (scope.story?.live ?? null) : (scope.story?.asOf(past) ?? null);
  }

  viewOf({ scope, step }: Spot, past: number | null): StepView | undefined {
    return this.foldOf(scope, past)?.step(step.stepId);
  }

  itemOf(spot: Spot, past: number | null): Item | undefined {
    return spot.index === null ? undefined : this.viewOf(spot, past)?.items?.each.get(spot.index);
  }

  /** Returns how each node looks. */
  looks(spots: readonly (Spot | null)[], past: number | null, now: number): Look[] {
    const folds = new Map<Scope, Fold | null>();
    return spots.map((spot) => {
      if (!spot) return UNKNOWN_LOOK;
      if (spot.turnsTo !== null) return { ...UNKNOWN_LOOK, title: this.rangeOf(spot).join("–"), isStack: true, isDimmed: false };
      let fold = folds.get(spot.scope);
      if (fold === undefined) folds.set(spot.scope, (fold = this.foldOf(spot.scope, past)));
      const view = fold?.step(spot.step.stepId);
      return spot.index === null ? lookOf(spot.step, view, now) : itemLook(spot.step, spot.index, view?.items?.each.get(spot.index));
    });
  }

  /** Returns the first and the last index of the items that a node leads to. */
  rangeOf(spot: Spot): [number, number] {
    const first = spot.turnsTo ?? 0;
    return [first, Math.min(first + MAX_DRAWN_ITEMS, this.#total(spot)) - 1];
  }

  /** Sets the open nodes. Unsubscribes from the executions of closed nodes. */
  show(open: readonly string[], pages: Pages): void {
    this.#open = open;
    this.#pages = pages;
    for (const [name, held] of this.#held) if (!open.includes(name)) this.#drop(name, held);
    // Shorter names come first, because a node is inside a node with a shorter name.
    for (const name of [...open].sort((a, b) => a.length - b.length)) this.#hold(name);
  }

  dispose(): void {
    for (const [name, held] of this.#held) this.#drop(name, held);
  }

  /** Returns a text that changes when the layout of the open nodes must be computed again. */
  get shape(): string {
    return this.#open
      .map((name) => {
        const spot = this.find(name);
        const kind = spot && this.kindOf(spot);
        if (kind === "items") return `${name} ${this.#total(spot!)} ${this.#first(name, spot!)}`;
        return kind === "plan" ? `${name} ${this.#held.get(name)?.scope?.plan.planId ?? ""}` : "";
      })
      .join(" ");
  }

  /** Draws the outermost plan with all open nodes. */
  draw(direction: LayoutDirection): Promise<Scene> {
    return this.#draw(this.whole, direction);
  }

  async #draw(scope: Scope, direction: LayoutDirection): Promise<Scene> {
    const inside = await this.#insides(direction, (it) => it.scope === scope && it.index === null);
    const sizes = [...inside].map(([name, scene]) => ({ name: name.slice(scope.prefix.length), ...openNodeSize(scene) }));
    const { drawing } = await queryLayout(scope.plan, direction, sizes);
    return nest(drawing, scope.prefix, inside);
  }

  async #insides(direction: LayoutDirection, isThere: (spot: Spot) => boolean): Promise<Map<string, Scene>> {
    const found = this.#open.map(async (name): Promise<[string, Scene] | null> => {
      const spot = this.find(name);
      if (!spot || !isThere(spot)) return null;
      const kind = this.kindOf(spot);
      const scope = this.#held.get(name)?.scope;
      if (kind === "items") return [name, await this.#items(name, spot, direction)];
      return kind === "plan" && scope ? [name, await this.#draw(scope, direction)] : null;
    });
    return new Map((await Promise.all(found)).filter((it) => it !== null));
  }

  async #items(name: string, spot: Spot, direction: LayoutDirection): Promise<Scene> {
    const inside = await this.#insides(direction, (it) => it.scope === spot.scope && it.step.stepId === spot.step.stepId && it.index !== null);
    const [total, first] = [this.#total(spot), this.#first(name, spot)];
    const names = Array.from({ length: Math.min(MAX_DRAWN_ITEMS, total - first) }, (_, at) => `${name}[${first + at}]`);
    if (first > 0) names.unshift(`${name}[${first - MAX_DRAWN_ITEMS}-]`);
    if (first + MAX_DRAWN_ITEMS < total) names.push(`${name}[${first + MAX_DRAWN_ITEMS}-]`);
    const drawn = new Set(names);
    return layoutRows(names, spot.step.plan !== null || total > MAX_DRAWN_ITEMS, new Map([...inside].filter(([it]) => drawn.has(it))));
  }

  /** Returns the index of the first drawn item of a loop. */
  #first(name: string, spot: Spot): number {
    const last = Math.max(0, this.#total(spot) - 1);
    return Math.min(this.#pages.get(name) ?? 0, last - (last % MAX_DRAWN_ITEMS));
  }

  #total({ scope, step }: Spot): number {
    return scope.story?.live.step(step.stepId)?.items?.total ?? 0;
  }

  #hold(name: string): void {
    const spot = this.find(name);
    if (!spot || this.kindOf(spot) !== "plan") return;
    const view = spot.scope.story?.live.step(spot.step.stepId);
    const child = (spot.index === null ? view?.child : view?.items?.each.get(spot.index)?.child) ?? null;
    const old = this.#held.get(name);
    if (old && old.child === child) return;
    old?.gone.abort();
    old?.leave();
    const held: Held = { scope: old?.scope ?? null, child, gone: new AbortController(), leave: () => {} };
    this.#held.set(name, held);
    void this.#load(name, spot.step.plan!, held);
  }

  async #load(name: string, planId: string, held: Held): Promise<void> {
    const { signal } = held.gone;
    const prefix = `${name}/`;
    try {
      const story = held.child === null ? null : await openChildStory(held.child, signal);
      const plan = story ? story.about.plan : (await ask(PlanSteps, { id: planId }, signal)).plan;
      if (signal.aborted || !plan) return;
      // The drawing of the plan stays when the execution starts.
      if (held.scope?.plan.planId === plan.planId) held.scope.story = story;
      else held.scope = { prefix, plan, stepOf: story?.stepOf ?? new Map(plan.tools.map((it) => [it.stepId, it])), story };
      if (story) {
        const stop = story.version.listen(() => this.#tell());
        const leave = story.watch();
        held.leave = () => (stop(), leave());
      }
      this.#tell();
    } catch (error) {
      if (signal.aborted) return;
      if ((error as ApiError).code !== "UNREACHABLE") this.failure.set(error as ApiError);
      else {
        const stop = returns.listen(() => {
          stop();
          if (!signal.aborted) void this.#load(name, planId, held);
        });
      }
    }
  }

  #drop(name: string, held: Held): void {
    held.gone.abort();
    held.leave();
    this.#held.delete(name);
  }

  #tell(): void {
    this.version.set(this.version.value + 1);
  }
}
