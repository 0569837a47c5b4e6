/** Layouts of plans. Plans never change, so layouts are cached. */

import { ask } from "../api/client";
import { PlanLayout, type Drawing, type LayoutDirection, type NodeSizeInput } from "../api/generated";

/** Size of a step with the gap to the next one, in pixels: along the direction of the graph, and across it. */
const ALONG = { RIGHT: 256, DOWN: 110 };
const ACROSS = { RIGHT: 74, DOWN: 220 };
/** Screens that are narrower than this, in pixels, are phones. */
const PHONE_WIDTH = 600;
/**
 * Number of layouts in the cache. It exceeds the number of nodes that can be open, so opening one more node queries
 * only its layout and those around it.
 */
const MAX_CACHED = 120;

export interface Drawn {
  drawing: Drawing;
  direction: LayoutDirection;
}

/** Layouts by query, including queries that are still running. */
const known = new Map<string, Promise<Drawn>>();

interface Step {
  stepId: string;
  dependsOn: readonly string[];
}

/** Returns the direction of a plan: to the right if it fits, and else the one in which it is drawn larger. */
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
  // On a phone, a graph leads to the right only if the whole graph fits, because users of phones scroll down.
  if (width < PHONE_WIDTH) return right >= 1 ? "RIGHT" : "DOWN";
  return right >= down || right >= 1 ? "RIGHT" : "DOWN";
}

interface Plan {
  planId: string;
  tools: readonly Step[];
}

/**
 * Returns the layout of a plan. Without `way`, uses the direction of `directionOf`. `sizes` are the sizes of open
 * nodes.
 */
export async function queryLayout(plan: Plan, way?: LayoutDirection, sizes: readonly NodeSizeInput[] = []): Promise<Drawn> {
  const wide = innerWidth > 760;
  const direction = way ?? directionOf(plan.tools, wide ? innerWidth - 420 : innerWidth, innerHeight - 260);
  const key = `${plan.planId} ${direction} ${sizes.map((it) => `${it.name} ${it.width} ${it.height}`).join(" ")}`;
  const found = known.get(key);
  if (found) return found;
  const asked = ask(PlanLayout, { id: plan.planId, direction, sizes: [...sizes] }).then(
    ({ plan }): Drawn => ({ drawing: plan?.layout ?? { width: 1, height: 1, nodes: [], edges: [] }, direction }),
  );
  if (known.size >= MAX_CACHED) known.clear();
  known.set(key, asked);
  asked.catch(() => known.delete(key));
  return asked;
}
