/** A graph that can be moved, zoomed and walked through by keyboard, with a small map of the whole. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Drawing } from "../api/generated";
import { Icon } from "../ui/icons";
import { GraphCanvas, type Look } from "./canvas";

interface Props {
  drawing: Drawing;
  leadsRight: boolean;
  looks: Look[];
  selected: string | null;
  onSelect: (name: string | null) => void;
  /** What stands at edges, by the names of their ends with a space between. */
  notes?: ReadonlyMap<string, string>;
  /** What it is a picture of, for those who do not see it. */
  label: string;
  /** What a node is called, for those who do not see it. */
  describe: (name: string) => string;
}

/** The map of the whole, in pixels. */
const MAP = { width: 176, height: 112 };
/** So many nodes can be seen without a map. */
const SMALL = 24;

export function Graph({ drawing, leadsRight, looks, selected, onSelect, notes, label, describe }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const graph = useRef<GraphCanvas | null>(null);
  const select = useRef(onSelect);
  const [said, say] = useState("");
  select.current = onSelect;
  const hasMap = drawing.nodes.length > SMALL;

  useLayoutEffect(() => {
    const element = frame.current!;
    const canvas = new GraphCanvas(below.current!, above.current!, drawing, leadsRight, notes);
    graph.current = canvas;
    const size = () => canvas.resize(element.clientWidth, element.clientHeight);
    size();
    canvas.begin(ofInterest(looks));
    const observer = new ResizeObserver(() => {
      const wasFitting = isFitting(canvas);
      size();
      if (wasFitting) canvas.fit();
    });
    observer.observe(element);
    canvas.onView = () => map.current && drawMap(map.current, canvas);
    const release = handle(element, canvas, (at) => select.current(at < 0 ? null : (canvas.nodes[at]?.name ?? null)));
    const recolour = () => canvas.readColours();
    addEventListener("faber:theme", recolour);
    return () => {
      observer.disconnect();
      release();
      removeEventListener("faber:theme", recolour);
      canvas.dispose();
    };
  }, [drawing, leadsRight]);

  useLayoutEffect(() => {
    graph.current?.show(looks);
    if (map.current && graph.current) drawMap(map.current, graph.current);
  }, [looks, drawing]);

  useEffect(() => {
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
    else if (event.key.startsWith("Arrow")) {
      const at = step(canvas, event.key, leadsRight);
      const name = canvas.nodes[at]?.name;
      if (name === undefined) return;
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
        aria-label={`${label}. Arrow keys go from step to step, plus and minus zoom, 0 shows all.`}
        onKeyDown={walk}
      >
        <canvas ref={below} aria-hidden="true" />
        <canvas ref={above} aria-hidden="true" data-nodes={drawing.nodes.length} />
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
          width={MAP.width * 2}
          height={MAP.height * 2}
          aria-hidden="true"
          onPointerDown={(event) => graph.current && goTo(event, graph.current)}
          onPointerMove={(event) => event.buttons === 1 && graph.current && goTo(event, graph.current)}
        />
      )}
      <p class="unseen" aria-live="polite">
        {said}
      </p>
    </div>
  );
}

/** What somebody who comes here wants to see first: what runs or waits, and otherwise what failed. */
function ofInterest(looks: readonly Look[]): number {
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

/** Lets the graph be moved by mouse, finger and wheel. Returns how to stop that. */
function handle(element: HTMLElement, canvas: GraphCanvas, click: (at: number) => void): () => void {
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
  const up = (event: PointerEvent) => {
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && moved <= 4 && event.type === "pointerup") {
      const { x, y } = place(event);
      click(canvas.hit(x, y));
    }
  };
  element.addEventListener("pointerup", up, { signal });
  element.addEventListener("pointercancel", up, { signal });
  element.addEventListener("dblclick", (event) => canvas.zoomAt(place(event).x, place(event).y, 1.6), { signal });
  return () => gone.abort();
}

/** Returns where an arrow key leads from the selected node. */
function step(canvas: GraphCanvas, key: string, leadsRight: boolean): number {
  const { selected, nodes, edges } = canvas;
  if (selected < 0) return 0;
  const here = nodes[selected]!;
  const [forth, back] = leadsRight ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
  const across = (it: { x: number; y: number }) => (leadsRight ? it.y - here.y : it.x - here.x);
  const nearest = (places: number[]) =>
    places.reduce((best, it) => (best < 0 || Math.abs(across(nodes[it]!)) < Math.abs(across(nodes[best]!)) ? it : best), -1);
  if (key === forth) return nearest(edges.filter((it) => it.from === selected).map((it) => it.to));
  if (key === back) return nearest(edges.filter((it) => it.to === selected).map((it) => it.from));
  const sign = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
  const along = (it: { x: number; y: number }) => Math.abs(leadsRight ? it.x - here.x : it.y - here.y);
  const beside = [...nodes.keys()].filter((it) => along(nodes[it]!) < 1 && across(nodes[it]!) * sign > 0);
  return nearest(beside);
}

function mapScale(canvas: GraphCanvas): { scale: number; x: number; y: number } {
  const [width, height] = [MAP.width * 2, MAP.height * 2];
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
    context.fillStyle = canvas.colour(canvas.look(at)?.tone ?? "idle");
    context.fillRect(node.x, node.y, Math.max(least, node.width), Math.max(least, node.height));
  }
  const { left, top, right, bottom } = canvas.seen;
  context.strokeStyle = canvas.colour("--accent");
  context.lineWidth = 3 / scale;
  context.strokeRect(left, top, right - left, bottom - top);
}

function goTo(event: PointerEvent, canvas: GraphCanvas): void {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const { scale, x, y } = mapScale(canvas);
  const gx = ((event.clientX - box.left) * 2 - x) / scale;
  const gy = ((event.clientY - box.top) * 2 - y) / scale;
  const { zoom } = canvas.view;
  canvas.move({ zoom, x: canvas.size.width / 2 - gx * zoom, y: canvas.size.height / 2 - gy * zoom });
}
