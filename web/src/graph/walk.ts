/** Keyboard navigation in a graph: along the edges, and into and out of open nodes. */

import type { SceneNode } from "./scene";

/** The graph and the selected node. */
interface WalkState {
  nodes: readonly SceneNode[];
  edges: readonly { from: number; to: number }[];
  selected: number;
  leadsRight: boolean;
}

type Box = Pick<SceneNode, "x" | "y" | "width" | "height">;

/** Returns the index of the node that an arrow key leads to, or -1. */
export function step(ground: WalkState, key: string): number {
  const { selected, nodes, leadsRight } = ground;
  if (selected < 0) return nodes.length > 0 ? 0 : -1;
  const here = nodes[selected]!;
  if (here.isCell) {
    const beside = neighbourCell(ground, key);
    if (beside >= 0) return beside;
  }
  const [forth, back] = leadsRight ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
  if (key === forth) return onward(ground);
  if (key === back) return backward(ground);
  const sign = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
  const along = (it: Box) => Math.abs(leadsRight ? it.x + it.width / 2 - here.x - here.width / 2 : it.y + it.height / 2 - here.y - here.height / 2);
  const beside = inside(ground, here.parent).filter((at) => along(nodes[at]!) < 1 && across(ground, at) * sign > 0);
  return nearest(ground, beside);
}

/** Returns the nodes directly inside a node. With -1, returns the outermost nodes. */
function inside({ nodes }: WalkState, parent: number): number[] {
  return [...nodes.keys()].filter((at) => nodes[at]!.parent === parent);
}

function onward(ground: WalkState): number {
  const { nodes, edges } = ground;
  let at = ground.selected;
  if (nodes[at]!.isOpen) {
    const [first] = inside(ground, at);
    if (first !== undefined) return first;
  }
  for (; at >= 0; at = nodes[at]!.parent) {
    const next = edges.filter((it) => it.from === at).map((it) => it.to);
    if (next.length > 0) return nearest(ground, next);
  }
  return -1;
}

function backward(ground: WalkState): number {
  const { nodes, edges, selected } = ground;
  const before = edges.filter((it) => it.to === selected).map((it) => it.from);
  return before.length > 0 ? nearest(ground, before) : nodes[selected]!.parent;
}

/** Returns the next item of a loop in the direction of an arrow key. */
function neighbourCell(ground: WalkState, key: string): number {
  const { nodes, selected } = ground;
  const here = nodes[selected]!;
  const isLevel = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  const [dx, dy] = [(at: number) => nodes[at]!.x - here.x, (at: number) => nodes[at]!.y - here.y];
  const there = inside(ground, here.parent).filter((at) => (isLevel ? Math.abs(dy(at)) < 1 && dx(at) * sign > 0 : dy(at) * sign > 0));
  const far = (at: number) => (isLevel ? Math.abs(dx(at)) : Math.abs(dy(at)) * 1_000 + Math.abs(dx(at)));
  return there.reduce((best, it) => (best < 0 || far(it) < far(best) ? it : best), -1);
}

function across({ nodes, selected, leadsRight }: WalkState, at: number): number {
  const [it, here] = [nodes[at]!, nodes[selected]!];
  return leadsRight ? it.y + it.height / 2 - here.y - here.height / 2 : it.x + it.width / 2 - here.x - here.width / 2;
}

function nearest(ground: WalkState, places: readonly number[]): number {
  return places.reduce((best, it) => (best < 0 || Math.abs(across(ground, it)) < Math.abs(across(ground, best)) ? it : best), -1);
}
