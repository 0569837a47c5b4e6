/**
 * What is inside the steps of a plan that nobody executes yet: the plans that they execute, and what a loop does for each
 * item. Each can be opened in the picture, also in a draft of which the server knows nothing. `each/send` is a step of
 * the plan that `each` executes; `each[]` is any item of a loop.
 */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { DraftLayout, PlanSteps, type Drawing, type Json, type LayoutDirection, type NodeSizeInput, type PlanInput, type Step } from "../api/generated";
import { isFields, print, type Fields } from "../api/json";
import { lookOf } from "../execution/looks";
import { drawn } from "../graph/drawn";
import { flat, nest, roomFor, rows, type Look, type Scene } from "../graph/scene";
import { idsOf } from "./draft";

/** What is drawn: a plan that is stored, by its id, or a draft. */
export type Source = { id: string } | { input: PlanInput };

/** A plan with all that is opened in it. */
export interface Insides {
  scene: Scene;
  steps: ReadonlyMap<string, Inner>;
}

/** A step, and where the plan is from that it is one of. */
export interface Inner {
  step: Step;
  source: Source;
}

/** A plan as it is drawn without anything open. */
interface Plan {
  tools: readonly Step[];
  layout: Drawing;
}

const WAY: LayoutDirection = "DOWN";
/** Which item of a loop is drawn: any. */
const ANY = "[]";

/** Answers about drafts, which are asked for again with every step that is opened. */
const known = new Map<string, Promise<Plan | null>>();
const KEPT = 50;

async function draft(input: PlanInput, sizes: readonly NodeSizeInput[]): Promise<Plan | null> {
  const key = print([input as unknown as Json, sizes as unknown as Json]);
  const found = known.get(key);
  if (found) return found;
  if (known.size >= KEPT) known.clear();
  const asked = ask(DraftLayout, { input, direction: WAY, sizes: [...sizes] }).then((it) => it.validatePlan.plan);
  known.set(key, asked);
  asked.catch(() => known.delete(key));
  return asked;
}

async function stored(planId: string, sizes: readonly NodeSizeInput[]): Promise<Plan | null> {
  const { plan } = await ask(PlanSteps, { id: planId });
  return plan && { tools: plan.tools, layout: (await drawn(plan, WAY, sizes)).drawing };
}

const planOf = (source: Source, sizes: readonly NodeSizeInput[] = []) => ("id" in source ? stored(source.id, sizes) : draft(source.input, sizes));

/** Where the plan is from that a step executes: it is written in the step, or stored. */
function within({ step, source }: Inner): Source {
  if ("id" in source) return { id: step.plan! };
  const at = idsOf(source.input.tools as unknown as Fields[]).indexOf(step.stepId);
  const inline = source.input.tools[at]?.inlinePlan;
  return inline ? { input: inline } : { id: step.plan! };
}

/** Draws a plan with what is open in it. */
async function draw(plan: Plan, source: Source, prefix: string, open: ReadonlySet<string>): Promise<Insides> {
  const steps = new Map<string, Inner>();
  const inside = new Map<string, Scene>();
  const opened = plan.tools.map(async (step) => {
    const name = prefix + step.stepId;
    const inner = { step, source };
    steps.set(name, inner);
    if (!open.has(name)) return;
    if (step.plan === null) {
      if (step.forEach !== null) inside.set(name, rows([name + ANY], true, new Map()));
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
  const sizes = [...inside].map(([name, scene]) => ({ name: name.slice(prefix.length), ...roomFor(scene) }));
  const larger = await planOf(source, sizes);
  return { scene: nest(larger?.layout ?? plan.layout, prefix, inside), steps };
}

/** The plan that is shown, with what is open in it. What was drawn stays until the next is there. */
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

/** How all nodes of the picture look. */
export function looksOf({ scene, steps }: Insides): Look[] {
  return scene.nodes.map((node) => {
    const found = steps.get(node.name);
    if (found) return lookOf(found.step, undefined, 0);
    return { tone: "idle", title: "each item", subtitle: "", note: "", isStack: false, isDimmed: false };
  });
}

/** What is in a step, in words; nothing where it cannot be opened. */
export function holds({ step }: Inner): string {
  if (step.plan !== null) return step.forEach === null ? "another plan" : "another plan for each item";
  return step.forEach === null ? "" : "a loop";
}

/** The step that a node stands for. */
export function stepOf(name: string): string {
  return name.endsWith(ANY) ? name.slice(0, -ANY.length) : name;
}

/** Where in what somebody wrote a step stands, which may be one of a plan that is written in another. */
export interface Written {
  step: Fields;
  /** Its place as diagnostics write it. */
  path: string;
  /** The other steps of its plan. */
  others: string[];
  /** Everything, with another step in its place, or none. */
  replaced: (step: Fields | null) => Fields;
}

/** Finds a step in what somebody wrote; nothing where the plan that it is of is only named there. */
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
