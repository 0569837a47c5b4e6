/** A graph that the user can move, zoom and walk through by keyboard, with an overview map. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { Icon } from "../ui/icons";
import { GraphCanvas, type Look, type View } from "./canvas";
import type { EdgeLook, Scene } from "./scene";
import { step } from "./walk";

interface Props {
  drawing: Scene;
  leadsRight: boolean;
  looks: Look[];
  selected: string | null;
  onSelect: (name: string | null) => void;
  /** Opens or closes a node. The visible nodes keep their positions on the screen. */
  onToggle?: (name: string) => void;
  /** The looks of edges, by `edgeKey`. */
  edgeLooks?: ReadonlyMap<string, EdgeLook>;
  /** The name of the graph for screen readers. */
  label: string;
  /** Returns the name of a node for screen readers. */
  describe: (name: string) => string;
}

/** Size of the overview map, in pixels. */
const MAP_SIZE = { width: 176, height: 112 };
/** Number of nodes up to which no map is needed. */
const MAX_NODES_WITHOUT_MAP = 24;

export function Graph({ drawing, leadsRight, looks, selected, onSelect, onToggle, edgeLooks, label, describe }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const graph = useRef<GraphCanvas | null>(null);
  const select = useRef(onSelect);
  const toggle = useRef(onToggle);
  const before = useRef<Before | null>(null);
  const toggledLast = useRef<string | null>(null);
  const [said, say] = useState("");
  select.current = onSelect;
  toggle.current = onToggle;
  const canOpen = onToggle !== undefined;
  const hasMap = drawing.nodes.length > MAX_NODES_WITHOUT_MAP;

  useLayoutEffect(() => {
    const element = frame.current!;
    const canvas = new GraphCanvas(below.current!, above.current!, drawing, leadsRight, canOpen, edgeLooks);
    graph.current = canvas;
    const size = () => canvas.resize(element.clientWidth, element.clientHeight);
    size();
    canvas.show(looks);
    // The user can press a key before the new graph gets its other properties.
    canvas.select(selected === null ? -1 : canvas.placeOf(selected));
    /** The first view. Null if this graph replaced another graph. */
    let first: View | null = null;
    const begin = () => {
      canvas.begin(findInterestingNode(canvas.looks));
      first = canvas.view;
    };
    if (before.current && (canOpen || edgeLooks)) showChangedGraph(canvas, before.current, toggledLast.current);
    else begin();
    const observer = new ResizeObserver(() => {
      const wasFitting = isFitting(canvas);
      size();
      if (wasFitting) canvas.fit();
      else if (canvas.view === first) begin();
    });
    observer.observe(element);
    canvas.onView = () => map.current && drawMap(map.current, canvas);
    const turn = (at: number) => {
      const name = canvas.nodes[at]?.name;
      if (name === undefined || !canvas.opens(at)) return false;
      toggledLast.current = name;
      toggle.current?.(name);
      return true;
    };
    const release = addPointerHandlers(element, canvas, {
      click: (at, x, y) => {
        if (canvas.hitsHandle(at, x, y)) return turn(at);
        select.current(at < 0 ? null : (canvas.nodes[at]?.name ?? null));
        return false;
      },
      doubleClick: turn,
    });
    const recolour = () => canvas.readColours();
    addEventListener("faber:theme", recolour);
    return () => {
      observer.disconnect();
      release();
      removeEventListener("faber:theme", recolour);
      before.current = { canvas, view: canvas.view, wasFitting: isFitting(canvas) };
      canvas.dispose();
    };
  }, [drawing, leadsRight]);

  useLayoutEffect(() => {
    graph.current?.show(looks);
    if (map.current && graph.current) drawMap(map.current, graph.current);
  }, [looks, drawing]);

  // A layout effect runs before the next key press, which starts from the selected node.
  useLayoutEffect(() => {
    const canvas = graph.current;
    if (!canvas) return;
    const at = selected === null ? -1 : canvas.placeOf(selected);
    canvas.select(at);
    if (at >= 0) canvas.reveal(at);
  }, [selected, drawing]);

  const walk = (event: KeyboardEvent) => {
    const canvas = graph.current;
    if (!canvas) return;
    const zoom: Record<string, number> = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 };
    const { width, height } = canvas.size;
    if (zoom[event.key]) canvas.zoomAt(width / 2, height / 2, zoom[event.key]!);
    else if (event.key === "0") canvas.fit();
    else if (event.key === "Escape") onSelect(null);
    else if (event.key === "Enter" || event.key === " ") {
      const node = canvas.nodes[canvas.selected];
      if (!node || !onToggle || !canvas.opens(canvas.selected)) return;
      toggledLast.current = node.name;
      onToggle(node.name);
      say(`${node.name}, ${node.isOpen ? "closed" : "opened"}`);
    }
    else if (event.key.startsWith("Arrow")) {
      const at = step(canvas, event.key);
      const name = canvas.nodes[at]?.name;
      if (name === undefined) return;
      canvas.select(at);
      onSelect(name);
      say(describe(name));
    } else return;
    event.preventDefault();
  };

  const zoomBy = (factor: number) => {
    const canvas = graph.current;
    canvas?.zoomAt(canvas.size.width / 2, canvas.size.height / 2, factor);
  };
  return (
    <div class="graph">
      <div
        class="graph-frame"
        ref={frame}
        tabIndex={0}
        role="application"
        aria-roledescription="graph"
        aria-label={`${label}. Arrow keys go from step to step, ${canOpen ? "Enter opens and closes a group, " : ""}plus and minus zoom, 0 shows all.`}
        onKeyDown={walk}
      >
        <canvas ref={below} aria-hidden="true" />
        <canvas ref={above} aria-hidden="true" data-nodes={drawing.nodes.length} data-open={drawing.nodes.filter((it) => it.isOpen).length} data-gates={looks.reduce((sum, look) => sum + (look.gates?.length ?? 0), 0)} />
      </div>
      <div class="graph-tools" role="group" aria-label="Zoom">
        <button type="button" class="icon-only" aria-label="Zoom in" onClick={() => zoomBy(1.4)}>
          <Icon name="plus" />
        </button>
        <button type="button" class="icon-only" aria-label="Zoom out" onClick={() => zoomBy(1 / 1.4)}>
          <Icon name="minus" />
        </button>
        <button type="button" class="icon-only" aria-label="Show all" onClick={() => graph.current?.fit()}>
          <Icon name="fit" />
        </button>
      </div>
      {hasMap && (
        <canvas
          ref={map}
          class="graph-map"
          width={MAP_SIZE.width * 2}
          height={MAP_SIZE.height * 2}
          aria-hidden="true"
          onPointerDown={(event) => graph.current && moveToMapPoint(event, graph.current)}
          onPointerMove={(event) => event.buttons === 1 && graph.current && moveToMapPoint(event, graph.current)}
        />
      )}
      <p class="unseen" aria-live="polite">
        {said}
      </p>
    </div>
  );
}

/** The view before the graph changed. */
interface Before {
  canvas: GraphCanvas;
  view: View;
  wasFitting: boolean;
}

/** Shows a changed graph so that visible nodes stay where they are, above all the node that was opened or closed. */
function showChangedGraph(canvas: GraphCanvas, { canvas: old, view, wasFitting }: Before, toggled: string | null): void {
  if (wasFitting && canvas.couldBeRead) return canvas.fit();
  const { width, height } = canvas.size;
  const isSeen = (at: number) => {
    const it = old.nodes[at];
    if (!it) return false;
    const [x, y] = [it.x * view.zoom + view.x, it.y * view.zoom + view.y];
    return x > -it.width * view.zoom && y > -it.height * view.zoom && x < width && y < height;
  };
  const names = [toggled, old.nodes[old.selected]?.name, ...old.nodes.filter((_, at) => isSeen(at)).map((it) => it.name)];
  const name = names.find((it) => it != null && canvas.placeOf(it) >= 0 && isSeen(old.placeOf(it)));
  if (name == null) return canvas.begin(-1);
  const [was, is] = [old.nodes[old.placeOf(name)]!, canvas.nodes[canvas.placeOf(name)]!];
  const { zoom } = view;
  let [x, y] = [view.x + (was.x - is.x) * zoom, view.y + (was.y - is.y) * zoom];
  if (is.isOpen && !was.isOpen) {
    // Shows as much of the opened node as fits.
    const room = 16;
    x -= Math.max(0, Math.min(is.x * zoom + x - room, (is.x + is.width) * zoom + x - (width - room)));
    y -= Math.max(0, Math.min(is.y * zoom + y - room, (is.y + is.height) * zoom + y - (height - room)));
  }
  canvas.move({ x, y, zoom });
}

/** Returns the index of a running node. Without one, returns a waiting node, or else a failed node, or -1. */
function findInterestingNode(looks: readonly Look[]): number {
  for (const tones of [["running", "retrying"], ["waiting"], ["bad"]]) {
    const at = looks.findIndex((it) => tones.includes(it.tone));
    if (at >= 0) return at;
  }
  return -1;
}

function isFitting(canvas: GraphCanvas): boolean {
  const { width, height } = canvas.size;
  const { x, y, zoom } = canvas.view;
  return Math.abs(x * 2 + canvas.width * zoom - width) < 2 && Math.abs(y * 2 + canvas.height * zoom - height) < 2;
}

/**
 * The handlers of clicks. Each returns true if it opened or closed a node. If `doubleClick` returns false, the graph
 * zooms in.
 */
interface Clicks {
  click: (at: number, x: number, y: number) => boolean;
  doubleClick: (at: number) => boolean;
}

/** Maximum time in milliseconds, and maximum distance in pixels, between the two clicks of a double click. */
const DOUBLE_CLICK = { time: 400, distance: 8 };

/** Handles mouse, touch and wheel events on the graph. The returned function removes the handlers. */
function addPointerHandlers(element: HTMLElement, canvas: GraphCanvas, { click, doubleClick }: Clicks): () => void {
  const gone = new AbortController();
  const { signal } = gone;
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  const place = (event: MouseEvent) => {
    const { left, top } = element.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const { x, y } = place(event);
      const lines = event.deltaMode === 1 ? 16 : 1;
      if (event.shiftKey) canvas.move({ ...canvas.view, x: canvas.view.x - event.deltaY * lines });
      else canvas.zoomAt(x, y, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)));
    },
    { signal, passive: false },
  );
  element.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button !== 0) return;
      if (pointers.size === 0) moved = 0;
      pointers.set(event.pointerId, place(event));
      element.setPointerCapture(event.pointerId);
    },
    { signal },
  );
  element.addEventListener(
    "pointermove",
    (event) => {
      const before = pointers.get(event.pointerId);
      const now = place(event);
      if (!before) {
        element.style.cursor = canvas.hit(now.x, now.y) >= 0 ? "pointer" : "";
        return;
      }
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      pointers.set(event.pointerId, now);
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      const { view } = canvas;
      if (!other) {
        if (moved > 4) canvas.move({ ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y });
        return;
      }
      const distance = (it: { x: number; y: number }) => Math.hypot(it.x - other.x, it.y - other.y) || 1;
      canvas.zoomAt((now.x + other.x) / 2, (now.y + other.y) / 2, distance(now) / distance(before));
    },
    { signal },
  );
  // The first click can select a node and so move the graph. The second click still belongs to the node of the first click.
  let first = { at: -1, x: 0, y: 0, time: -Infinity };
  const up = (event: PointerEvent) => {
    const wasDown = pointers.delete(event.pointerId);
    if (!wasDown || moved > 4 || event.type !== "pointerup") return;
    const { x, y } = place(event);
    const time = event.timeStamp;
    if (time - first.time < DOUBLE_CLICK.time && Math.hypot(x - first.x, y - first.y) < DOUBLE_CLICK.distance) {
      first.time = -Infinity;
      if (!doubleClick(first.at)) canvas.zoomAt(x, y, 1.6);
      return;
    }
    const at = canvas.hit(x, y);
    const isDone = click(at, x, y);
    first = { at, x, y, time: isDone ? -Infinity : time };
  };
  element.addEventListener("pointerup", up, { signal });
  element.addEventListener("pointercancel", up, { signal });
  return () => gone.abort();
}

function mapScale(canvas: GraphCanvas): { scale: number; x: number; y: number } {
  const [width, height] = [MAP_SIZE.width * 2, MAP_SIZE.height * 2];
  const scale = Math.min((width - 16) / canvas.width, (height - 16) / canvas.height);
  return { scale, x: (width - canvas.width * scale) / 2, y: (height - canvas.height * scale) / 2 };
}

function drawMap(element: HTMLCanvasElement, canvas: GraphCanvas): void {
  const context = element.getContext("2d")!;
  const { scale, x, y } = mapScale(canvas);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, element.width, element.height);
  context.setTransform(scale, 0, 0, scale, x, y);
  const least = 2 / scale;
  for (const [at, node] of canvas.nodes.entries()) {
    const tone = canvas.look(at)?.tone ?? "idle";
    context.fillStyle = canvas.colour(node.isOpen ? `${tone}-ground` : tone);
    context.fillRect(node.x, node.y, Math.max(least, node.width), Math.max(least, node.height));
  }
  const { left, top, right, bottom } = canvas.seen;
  context.strokeStyle = canvas.colour("--accent");
  context.lineWidth = 3 / scale;
  context.strokeRect(left, top, right - left, bottom - top);
}

function moveToMapPoint(event: PointerEvent, canvas: GraphCanvas): void {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const { scale, x, y } = mapScale(canvas);
  const gx = ((event.clientX - box.left) * 2 - x) / scale;
  const gy = ((event.clientY - box.top) * 2 - y) / scale;
  const { zoom } = canvas.view;
  canvas.move({ zoom, x: canvas.size.width / 2 - gx * zoom, y: canvas.size.height / 2 - gy * zoom });
}
