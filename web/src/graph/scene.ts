/**
 * A graph in which nodes can be opened: what is inside one is drawn in its place, with a border around it. Only places
 * are reckoned here; who asks the server for them says how large what was opened is.
 */

import type { Drawing } from "../api/generated";

/** What must be so before a step begins: a condition holds, or a person approves. */
export interface Gate {
  kind: "condition" | "approval";
  text: string;
}

/** How a node looks now. */
export interface Look {
  tone: string;
  title: string;
  subtitle: string;
  /** Small text at the right: a duration, a count. */
  note: string;
  /** Whether it stands for many things of one kind, which can be shown in its place where the graph can do that. */
  isStack: boolean;
  isDimmed: boolean;
  /** Shown on the upper border of the node. */
  gates?: readonly Gate[];
}

/** Gates in words, for those who do not see them. */
export function gatesText(gates: readonly Gate[] = []): string {
  return gates.map((gate) => (gate.kind === "condition" ? `, if ${gate.text}` : ", needs an approval")).join("");
}

/** Which part of a drawing is on the screen, and how large. */
export interface View {
  x: number;
  y: number;
  zoom: number;
}

export interface SceneNode {
  /** Its name in the whole, which is that in its own graph behind the name of what it is in. */
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The place of the node that it is in; -1 where that is the whole. */
  parent: number;
  /** Whether it is opened, so that others are in it. */
  isOpen: boolean;
  /** Whether it has its place by its number, and no edges. */
  isCell: boolean;
}

export interface Scene {
  width: number;
  height: number;
  /** Each stands behind the one that it is in. */
  nodes: SceneNode[];
  edges: Drawing["edges"];
}

/** How an edge looks, where it is not like most. */
export interface EdgeLook {
  /** Small text beside it. */
  note: string;
  isDashed: boolean;
}

/** Names an edge by its ends: names have no line ends, and may have everything else. */
export function edgeKey({ from, to }: { from: string; to: string }): string {
  return `${from}\n${to}`;
}

/** What is between the border of an opened node and what is in it; at the top stands its name. */
export const HEAD = 40;
const EDGE = 16;
/** The least that an opened node takes, so that its name can be read. */
const LEAST = { width: 236, height: 52 };

/** How large an item of a loop is, and what is between two. */
const CELL = { width: 118, height: 38 };
const WIDE_CELL = 148;
const GAP = 10;
/** How much wider than high the items of a loop are together. */
const ASPECT = 1.8;

/** The room that an opened node takes. */
export function roomFor(inside: Scene): { width: number; height: number } {
  return {
    width: Math.max(LEAST.width, inside.width + 2 * EDGE),
    height: Math.max(LEAST.height, inside.nodes.length > 0 ? inside.height + HEAD + EDGE : 0),
  };
}

/** Puts what is inside opened nodes into their places. `inside` has their names in the whole, as what is in them does. */
export function nest(drawing: Drawing, prefix: string, inside: ReadonlyMap<string, Scene>): Scene {
  const nodes: SceneNode[] = drawing.nodes.map((it) => {
    const name = prefix + it.name;
    return { ...it, name, parent: -1, isOpen: inside.has(name), isCell: false };
  });
  const edges = drawing.edges.map((it) => (prefix === "" ? it : { ...it, from: prefix + it.from, to: prefix + it.to }));
  return filled({ width: drawing.width, height: drawing.height, nodes, edges }, inside);
}

/** Puts the items of a loop into rows, from the first to the last. Those that can be opened are wider. */
export function rows(names: readonly string[], isWide: boolean, inside: ReadonlyMap<string, Scene>): Scene {
  const cell = { width: isWide ? WIDE_CELL : CELL.width, height: CELL.height };
  const columns = Math.max(1, Math.min(names.length, Math.ceil(Math.sqrt((names.length * ASPECT * (cell.height + GAP)) / (cell.width + GAP)))));
  const opened = [...inside.values()].map(roomFor);
  const width = Math.max(columns * (cell.width + GAP) - GAP, ...opened.map((it) => it.width));
  let [x, y, height] = [0, 0, 0];
  const nodes = names.map((name) => {
    const scene = inside.get(name);
    const size = scene ? roomFor(scene) : cell;
    if (x > 0 && x + size.width > width) {
      y += height + GAP;
      [x, height] = [0, 0];
    }
    const node: SceneNode = { name, x, y, ...size, parent: -1, isOpen: scene !== undefined, isCell: true };
    x += size.width + GAP;
    height = Math.max(height, size.height);
    return node;
  });
  return filled({ width: names.length > 0 ? width : 0, height: y + height, nodes, edges: [] }, inside);
}

function filled(scene: Scene, inside: ReadonlyMap<string, Scene>): Scene {
  if (inside.size === 0) return scene;
  const nodes = [...scene.nodes];
  const edges = [...scene.edges];
  for (const [at, around] of scene.nodes.entries()) {
    const inner = inside.get(around.name);
    if (!inner) continue;
    const [left, top] = [around.x + EDGE, around.y + HEAD];
    const first = nodes.length;
    for (const it of inner.nodes) nodes.push({ ...it, x: it.x + left, y: it.y + top, parent: it.parent < 0 ? at : it.parent + first });
    for (const it of inner.edges) edges.push({ ...it, points: it.points.map((value, n) => value + (n % 2 === 0 ? left : top)) });
  }
  return { ...scene, nodes, edges };
}

/** A graph of which nothing is opened. */
export function flat(drawing: Drawing): Scene {
  return nest(drawing, "", new Map());
}
