/**
 * Computes the layout of a graph with open nodes. The content of an open node is drawn inside its border. The server
 * computes the layout of each plan, and needs the sizes of open nodes for it.
 */

import type { Drawing } from "../api/generated";

/** A requirement for the start of a step: a condition, or a person's approval. */
export interface Gate {
  kind: "condition" | "approval";
  text: string;
}

/** The text and colours of a node. */
export interface Look {
  tone: string;
  title: string;
  subtitle: string;
  /** Small text on the right, such as a duration or a number. */
  note: string;
  /** True if the node stands for several steps or items, which the graph can show inside. */
  isStack: boolean;
  isDimmed: boolean;
  /** Gates on the upper border of the node. */
  gates?: readonly Gate[];
}

/** Returns the gates in words, for screen readers. */
export function gatesText(gates: readonly Gate[] = []): string {
  return gates.map((gate) => (gate.kind === "condition" ? `, if ${gate.text}` : ", needs an approval")).join("");
}

/** The visible part of a drawing, and the zoom. */
export interface View {
  x: number;
  y: number;
  zoom: number;
}

export interface SceneNode {
  /** The node's name: the name of the containing node, and then the name within its own plan. */
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Index of the node that contains this one, or -1. */
  parent: number;
  /** True if the node is open and shows its content. */
  isOpen: boolean;
  /** True for an item of a loop. Items are placed in a grid and have no edges. */
  isCell: boolean;
}

export interface Scene {
  width: number;
  height: number;
  /** The nodes. A node comes after the node that contains it. */
  nodes: SceneNode[];
  edges: Drawing["edges"];
}

/** The look of an edge that differs from the default. */
export interface EdgeLook {
  /** Small text on the edge. */
  note: string;
  isDashed: boolean;
}

/** Returns a key for an edge. Names of nodes cannot contain a line feed. */
export function edgeKey({ from, to }: { from: string; to: string }): string {
  return `${from}\n${to}`;
}

/** Space between the top border of an open node and its content, for the name. `BORDER` is the space at the other borders. */
export const HEAD_HEIGHT = 40;
const BORDER = 16;
/** Minimum size of an open node, so that its name is readable. */
const MIN_SIZE = { width: 236, height: 52 };

/** Size of an item of a loop, and the gap between items, in pixels. */
const CELL_SIZE = { width: 118, height: 38 };
const WIDE_CELL = 148;
const CELL_GAP = 10;
/** Ratio of width to height of the grid of items. */
const ASPECT = 1.8;

/** Returns the size of an open node with this content. */
export function openNodeSize(inside: Scene): { width: number; height: number } {
  return {
    width: Math.max(MIN_SIZE.width, inside.width + 2 * BORDER),
    height: Math.max(MIN_SIZE.height, inside.nodes.length > 0 ? inside.height + HEAD_HEIGHT + BORDER : 0),
  };
}

/** Puts the contents of open nodes into the drawing. `inside` maps the full name of each open node to its content. */
export function nest(drawing: Drawing, prefix: string, inside: ReadonlyMap<string, Scene>): Scene {
  const nodes: SceneNode[] = drawing.nodes.map((it) => {
    const name = prefix + it.name;
    return { ...it, name, parent: -1, isOpen: inside.has(name), isCell: false };
  });
  const edges = drawing.edges.map((it) => (prefix === "" ? it : { ...it, from: prefix + it.from, to: prefix + it.to }));
  return filled({ width: drawing.width, height: drawing.height, nodes, edges }, inside);
}

/** Puts the items of a loop into rows. Items that can be opened are wider. */
export function layoutRows(names: readonly string[], isWide: boolean, inside: ReadonlyMap<string, Scene>): Scene {
  const cell = { width: isWide ? WIDE_CELL : CELL_SIZE.width, height: CELL_SIZE.height };
  const columns = Math.max(1, Math.min(names.length, Math.ceil(Math.sqrt((names.length * ASPECT * (cell.height + CELL_GAP)) / (cell.width + CELL_GAP)))));
  const opened = [...inside.values()].map(openNodeSize);
  const width = Math.max(columns * (cell.width + CELL_GAP) - CELL_GAP, ...opened.map((it) => it.width));
  let [x, y, height] = [0, 0, 0];
  const nodes = names.map((name) => {
    const scene = inside.get(name);
    const size = scene ? openNodeSize(scene) : cell;
    if (x > 0 && x + size.width > width) {
      y += height + CELL_GAP;
      [x, height] = [0, 0];
    }
    const node: SceneNode = { name, x, y, ...size, parent: -1, isOpen: scene !== undefined, isCell: true };
    x += size.width + CELL_GAP;
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
    const [left, top] = [around.x + BORDER, around.y + HEAD_HEIGHT];
    const first = nodes.length;
    for (const it of inner.nodes) nodes.push({ ...it, x: it.x + left, y: it.y + top, parent: it.parent < 0 ? at : it.parent + first });
    for (const it of inner.edges) edges.push({ ...it, points: it.points.map((value, n) => value + (n % 2 === 0 ? left : top)) });
  }
  return { ...scene, nodes, edges };
}

/** Returns a graph without open nodes. */
export function flat(drawing: Drawing): Scene {
  return nest(drawing, "", new Map());
}
