/** Where the steps of a plan are drawn: plans never change, so that each is asked for once. */

import { ask } from "../api/client";
import { PlanLayout, type Drawing, type LayoutDirection, type NodeSizeInput } from "../api/generated";

/** How much room a step has, with what is between it and the next: along the way, and across. */
const ALONG = { RIGHT: 256, DOWN: 110 };
const ACROSS = { RIGHT: 74, DOWN: 220 };
/** What is narrower is a phone. */
const NARROW = 600;
/** Drawings that are kept: more than can be open at once, so that one more is the only one that is asked for. */
const KEPT = 120;

export interface Drawn {
  drawing: Drawing;
  direction: LayoutDirection;
}

/** What was asked for, also where the answer is still on its way: what is open many times is asked for once. */
const known = new Map<string, Promise<Drawn>>();

interface Step {
  stepId: string;
  dependsOn: readonly string[];
}

/** Returns the direction in which a plan is larger on a screen of this size. */
export function directionOf(steps: readonly Step[], width: number, height: number): LayoutDirection {
  const layers = new Map<string, number>();
  const sizes: number[] = [];
  for (const step of steps) {
    const layer = Math.max(-1, ...step.dependsOn.map((it) => layers.get(it) ?? 0)) + 1;
    layers.set(step.stepId, layer);
    sizes[layer] = (sizes[layer] ?? 0) + 1;
  }
  const widest = Math.max(1, ...sizes);
  const right = Math.min(width / (sizes.length * ALONG.RIGHT), height / (widest * ACROSS.RIGHT));
  const down = Math.min(width / (widest * ACROSS.DOWN), height / (sizes.length * ALONG.DOWN));
  // On a phone what goes down is followed with a thumb.
  if (width < NARROW) return right >= 1 ? "RIGHT" : "DOWN";
  return right >= down || right >= 1 ? "RIGHT" : "DOWN";
}

interface Plan {
  planId: string;
  tools: readonly Step[];
}

/** Draws a plan in the direction in which it is larger here, or in one that is given; steps that are opened are larger. */
export async function drawn(plan: Plan, way?: LayoutDirection, sizes: readonly NodeSizeInput[] = []): Promise<Drawn> {
  const wide = innerWidth > 760;
  const direction = way ?? directionOf(plan.tools, wide ? innerWidth - 420 : innerWidth, innerHeight - 260);
  const key = `${plan.planId} ${direction} ${sizes.map((it) => `${it.name} ${it.width} ${it.height}`).join(" ")}`;
  const found = known.get(key);
  if (found) return found;
  const asked = ask(PlanLayout, { id: plan.planId, direction, sizes: [...sizes] }).then(
    ({ plan }): Drawn => ({ drawing: plan?.layout ?? { width: 1, height: 1, nodes: [], edges: [] }, direction }),
  );
  if (known.size >= KEPT) known.clear();
  known.set(key, asked);
  asked.catch(() => known.delete(key));
  return asked;
}
