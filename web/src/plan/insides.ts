/**
 * The steps of plans without an execution, and the nodes that can be opened in their graph: sub-plans and loops. The
 * plan can also be a draft that the server has not stored. `each/send` is a step of the sub-plan of `each`, and
 * `each[]` stands for any item of a loop.
 */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { DraftLayout, PlanSteps, type Drawing, type Json, type LayoutDirection, type NodeSizeInput, type PlanInput, type Step } from "../api/generated";
import { isFields, print, type Fields } from "../api/json";
import { lookOf } from "../execution/looks";
import { queryLayout } from "../graph/drawn";
import { flat, nest, openNodeSize, layoutRows, type Look, type Scene } from "../graph/scene";
import { idsOf } from "./draft";

/** The source of a drawn plan: a stored plan by its id, or a draft. */
export type Source = { id: string } | { input: PlanInput };

/** A plan with its open nodes. */
export interface Insides {
  scene: Scene;
  steps: ReadonlyMap<string, Inner>;
}

/** A step, and the source of the plan that contains it. */
export interface Inner {
  step: Step;
  source: Source;
}

/** A plan and its layout without open nodes. */
interface Plan {
  tools: readonly Step[];
  layout: Drawing;
}

const DIRECTION: LayoutDirection = "DOWN";
/** The suffix of the node that stands for any item of a loop. */
const ANY_ITEM = "[]";

/** Layouts of drafts by query. They are cached, because they are needed again whenever a node is opened. */
const known = new Map<string, Promise<Plan | null>>();
const MAX_CACHED = 50;

async function queryDraft(input: PlanInput, sizes: readonly NodeSizeInput[]): Promise<Plan | null> {
  const key = print([input as unknown as Json, sizes as unknown as Json]);
  const found = known.get(key);
  if (found) return found;
  if (known.size >= MAX_CACHED) known.clear();
  const asked = ask(DraftLayout, { input, direction: DIRECTION, sizes: [...sizes] }).then((it) => it.validatePlan.plan);
  known.set(key, asked);
  asked.catch(() => known.delete(key));
  return asked;
}

async function queryPlan(planId: string, sizes: readonly NodeSizeInput[]): Promise<Plan | null> {
  const { plan } = await ask(PlanSteps, { id: planId });
  return plan && { tools: plan.tools, layout: (await queryLayout(plan, DIRECTION, sizes)).drawing };
}

const planOf = (source: Source, sizes: readonly NodeSizeInput[] = []) => ("id" in source ? queryPlan(source.id, sizes) : queryDraft(source.input, sizes));

/** Returns the source of the plan that a step executes. */
function within({ step, source }: Inner): Source {
  if ("id" in source) return { id: step.plan! };
  const at = idsOf(source.input.tools as unknown as Fields[]).indexOf(step.stepId);
  const inline = source.input.tools[at]?.inlinePlan;
  return inline ? { input: inline } : { id: step.plan! };
}

/** Draws a plan with its open nodes. */
async function draw(plan: Plan, source: Source, prefix: string, open: ReadonlySet<string>): Promise<Insides> {
  const steps = new Map<string, Inner>();
  const inside = new Map<string, Scene>();
  const opened = plan.tools.map(async (step) => {
    const name = prefix + step.stepId;
    const inner = { step, source };
    steps.set(name, inner);
    if (!open.has(name)) return;
    if (step.plan === null) {
      if (step.forEach !== null) inside.set(name, layoutRows([name + ANY_ITEM], true, new Map()));
      return;
    }
    const from = within(inner);
    const other = await planOf(from);
    if (!other) return;
    const it = await draw(other, from, `${name}/`, open);
    inside.set(name, it.scene);
    for (const [name, inner] of it.steps) steps.set(name, inner);
  });
  await Promise.all(opened);
  if (inside.size === 0) return { scene: nest(plan.layout, prefix, inside), steps };
  const sizes = [...inside].map(([name, scene]) => ({ name: name.slice(prefix.length), ...openNodeSize(scene) }));
  const larger = await planOf(source, sizes);
  return { scene: nest(larger?.layout ?? plan.layout, prefix, inside), steps };
}

/** Returns the drawing of a plan with its open nodes. The old drawing stays until the new one is ready. */
export function useInsides(shown: { plan: Plan; source: Source } | null, open: readonly string[], onFail: (error: ApiError) => void): Insides | null {
  const closed = useMemo(() => {
    if (!shown) return null;
    const { plan, source } = shown;
    return { scene: flat(plan.layout), steps: new Map(plan.tools.map((step) => [step.stepId, { step, source }])) };
  }, [shown]);
  const [drawn, setDrawn] = useState<Insides | null>(null);
  useEffect(() => {
    if (!shown || open.length === 0) return setDrawn(null);
    let isGone = false;
    draw(shown.plan, shown.source, "", new Set(open)).then(
      (it) => isGone || setDrawn(it),
      (error: ApiError) => isGone || onFail(error),
    );
    return () => {
      isGone = true;
    };
  }, [shown, open]);
  return open.length === 0 ? closed : (drawn ?? closed);
}

/** Returns how each node looks. */
export function looksOf({ scene, steps }: Insides): Look[] {
  return scene.nodes.map((node) => {
    const found = steps.get(node.name);
    if (found) return lookOf(found.step, undefined, 0);
    return { tone: "idle", title: "each item", subtitle: "", note: "", isStack: false, isDimmed: false };
  });
}

/** Returns in words what a step contains. Empty if the step cannot be opened. */
export function holds({ step }: Inner): string {
  if (step.plan !== null) return step.forEach === null ? "sub-plan" : "sub-plan for each item";
  return step.forEach === null ? "" : "a loop";
}

/** Returns the name of the step that a node stands for. */
export function stepOf(name: string): string {
  return name.endsWith(ANY_ITEM) ? name.slice(0, -ANY_ITEM.length) : name;
}

/** A step within a draft. The step can be in an inline plan. */
export interface Written {
  step: Fields;
  /** The step's path, as in diagnostics. */
  path: string;
  /** Ids of the other steps of the same plan. */
  others: string[];
  /** Returns the draft with another step in place of this step. With null, returns the draft without this step. */
  replaced: (step: Fields | null) => Fields;
}

/** Finds a step in a draft. Returns null if the step belongs to a plan that the draft only names. */
export function find(whole: Fields, name: string): Written | null {
  const cut = name.indexOf("/");
  const id = cut < 0 ? name : name.slice(0, cut);
  const tools = Array.isArray(whole.tools) ? (whole.tools as Fields[]) : [];
  if (!tools.every(isFields)) return null;
  const ids = idsOf(tools);
  const at = ids.indexOf(id);
  const step = tools[at];
  if (!step) return null;
  const path = `tools[${at}]`;
  const put = (it: Fields | null): Fields => ({ ...whole, tools: it === null ? tools.toSpliced(at, 1) : tools.with(at, it) });
  if (cut < 0) return { step, path, others: ids.filter((it) => it !== id), replaced: put };
  const field = ["inlinePlan", "plan"].find((it) => isFields(step[it]));
  const inner = field === undefined ? null : find(step[field] as Fields, name.slice(cut + 1));
  return inner && { ...inner, path: `${path}.${field}.${inner.path}`, replaced: (it) => put({ ...step, [field!]: inner.replaced(it) }) };
}
