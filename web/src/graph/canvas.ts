/**
 * A graph on two canvases. Edges are below and nodes above, so that a change of state redraws only nodes. Only visible
 * parts are drawn, and without texts if the zoom is low.
 */

import { edgeKey, HEAD_HEIGHT, type EdgeLook, type Gate, type Look, type Scene, type SceneNode, type View } from "./scene";
import { drawArrow, traceBox, traceCurve, drawGateSign, drawMark, MARKS, traceLines } from "./strokes";

export type { Look, View };

interface Edge {
  from: number;
  to: number;
  points: number[];
  left: number;
  top: number;
  right: number;
  bottom: number;
  note: string;
  isDashed: boolean;
}

const MIN_ZOOM = 0.02;
const MAX_ZOOM = 2.5;
/** Zoom from which nodes have titles. From `DETAIL_ZOOM` on, they have all texts. */
const TITLE_ZOOM = 0.34;
const DETAIL_ZOOM = 0.55;
/** Minimum first zoom of a large graph. */
const START_ZOOM = 0.7;
/** Zoom from which nodes without texts have the shape of their state. */
const SHAPE_ZOOM = 0.12;
/** Maximum number of characters in an item of a loop. The number of the item matters more than its duration. */
const MAX_CELL_CHARS = 11;
/** Width of the area that opens or closes a node, in pixels. */
const HANDLE_WIDTH = 24;
/** Height of a gate, and the gap beside it, in pixels. */
const GATE_HEIGHT = 17;
const GATE_GAP = 5;
/** Distance between the middle of a gate and the border below it, in pixels. */
const GATE_RISE = 4;
const TONES = ["idle", "running", "retrying", "waiting", "good", "bad", "skipped", "stopped", "undone", "action", "tool"];

type Colours = Record<string, string>;

export class GraphCanvas {
  readonly nodes: SceneNode[];
  readonly edges: Edge[];
  readonly width: number;
  readonly height: number;
  view: View = { x: 0, y: 0, zoom: 1 };
  selected = -1;
  onView: () => void = () => {};
  #places: Map<string, number>;
  #looks: Look[] = [];
  #below: CanvasRenderingContext2D;
  #above: CanvasRenderingContext2D;
  #colours: Colours = {};
  #size = { width: 0, height: 0, ratio: 1 };
  #frame = 0;
  #isBelowStale = true;
  #cut = new Map<string, string>();
  #isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  #isGone = false;

  constructor(
    below: HTMLCanvasElement,
    above: HTMLCanvasElement,
    drawing: Scene,
    readonly leadsRight: boolean,
    readonly canOpen: boolean,
    edgeLooks: ReadonlyMap<string, EdgeLook> = new Map(),
  ) {
    this.#below = below.getContext("2d")!;
    this.#above = above.getContext("2d")!;
    this.nodes = drawing.nodes;
    this.width = drawing.width;
    this.height = drawing.height;
    this.#places = new Map(drawing.nodes.map((it, at) => [it.name, at]));
    this.edges = drawing.edges.flatMap((it) => {
      const [from, to] = [this.#places.get(it.from), this.#places.get(it.to)];
      if (from === undefined || to === undefined) return [];
      const xs = it.points.filter((_, at) => at % 2 === 0);
      const ys = it.points.filter((_, at) => at % 2 === 1);
      const { note = "", isDashed = false } = edgeLooks.get(edgeKey(it)) ?? {};
      return [{ from, to, points: it.points, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys), note, isDashed }];
    });
    this.readColours();
  }

  placeOf(name: string): number {
    return this.#places.get(name) ?? -1;
  }

  /** Reads the colours of the page, which differ between the light and the dark theme. */
  readColours(): void {
    const style = getComputedStyle(this.#above.canvas);
    const read = (name: string) => style.getPropertyValue(name).trim();
    const names = ["--line-strong", "--edge", "--surface", "--text", "--muted", "--accent", "--canvas"];
    this.#colours = Object.fromEntries(names.map((name) => [name, read(name)]));
    for (const tone of TONES) {
      this.#colours[tone] = read(`--${tone}`);
      this.#colours[`${tone}-ground`] = read(`--${tone}-ground`);
    }
    this.#colours.font = style.fontFamily;
    this.redraw(true);
  }

  colour(name: string): string {
    return this.#colours[name] ?? "#888";
  }

  show(looks: Look[]): void {
    const hasOtherGates = looks.some((look, at) => hasGates(look) !== hasGates(this.#looks[at]));
    this.#looks = looks;
    // Edges end at gates, so they are redrawn if the gates have changed.
    this.redraw(hasOtherGates);
  }

  get looks(): readonly Look[] {
    return this.#looks;
  }

  look(at: number): Look | undefined {
    return this.#looks[at];
  }

  select(at: number): void {
    this.selected = at;
    this.redraw(false);
  }

  resize(width: number, height: number): void {
    const ratio = devicePixelRatio || 1;
    this.#size = { width, height, ratio };
    for (const { canvas } of [this.#below, this.#above]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.redraw(true);
  }

  get size() {
    return this.#size;
  }

  move(view: View): void {
    const zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, view.zoom));
    this.view = { ...view, zoom };
    this.redraw(true);
    this.onView();
  }

  /** Zooms around a point of the screen. */
  zoomAt(x: number, y: number, factor: number): void {
    const { view } = this;
    const zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, view.zoom * factor));
    const scale = zoom / view.zoom;
    this.move({ x: x - (x - view.x) * scale, y: y - (y - view.y) * scale, zoom });
  }

  /** Returns whether texts are readable if the whole graph is shown. */
  get couldBeRead(): boolean {
    return this.#wholeZoom >= DETAIL_ZOOM;
  }

  get #wholeZoom(): number {
    const { width, height } = this.#size;
    const room = Math.min(32, width / 12);
    return Math.min(1.1, (width - 2 * room) / this.width, (height - 2 * room) / this.height);
  }

  /** Shows the whole graph. Enlarges small graphs by at most a tenth. */
  fit(): void {
    const { width, height } = this.#size;
    const zoom = this.#wholeZoom;
    this.move({ zoom, x: (width - this.width * zoom) / 2, y: (height - this.height * zoom) / 2 });
  }

  /**
   * Shows the whole graph if the texts of the whole graph are readable. Otherwise shows a readable part: around the
   * node `at`, or at the first node without incoming edges.
   */
  begin(at: number): void {
    this.fit();
    if (this.view.zoom >= DETAIL_ZOOM || this.#size.width === 0) return;
    const root = this.nodes.findIndex((_, it) => !this.edges.some((edge) => edge.to === it));
    const node = this.nodes[at] ?? this.nodes[Math.max(0, root)];
    if (!node) return;
    const { width, height } = this.#size;
    const zoom = Math.max(START_ZOOM, Math.min(0.9, (this.leadsRight ? height / this.height : width / this.width) * 0.96));
    const middle = { x: width / 2 - (node.x + node.width / 2) * zoom, y: height / 2 - (node.y + node.height / 2) * zoom };
    const room = 24;
    const start = this.leadsRight ? { ...middle, x: room - node.x * zoom } : { ...middle, y: room - node.y * zoom };
    // A graph that is larger than the screen leaves no empty space at a border of the screen.
    const within = (it: number, size: number, whole: number) => (whole * zoom + 2 * room <= size ? (size - whole * zoom) / 2 : Math.min(room, Math.max(size - whole * zoom - room, it)));
    const { x, y } = at >= 0 ? middle : start;
    this.move({ zoom, x: within(x, width, this.width), y: within(y, height, this.height) });
  }

  /** Moves the graph until a node is visible. Also zooms in if the node would have no title. */
  reveal(at: number): void {
    const node = this.nodes[at];
    if (!node) return;
    const { width, height } = this.#size;
    const zoom = this.view.zoom < TITLE_ZOOM ? 0.8 : this.view.zoom;
    const [x, y] = [node.x * zoom + this.view.x, node.y * zoom + this.view.y];
    const isSeen = zoom === this.view.zoom && x > 8 && y > 8 && x + node.width * zoom < width - 8 && y + node.height * zoom < height - 8;
    if (isSeen) return;
    this.move({ zoom, x: width / 2 - (node.x + node.width / 2) * zoom, y: height / 2 - (node.y + node.height / 2) * zoom });
  }

  hit(x: number, y: number): number {
    const { view } = this;
    const [gx, gy] = [(x - view.x) / view.zoom, (y - view.y) / view.zoom];
    const slack = Math.min(12, 4 / view.zoom);
    // Inner nodes come after the node that contains them, so the last match is the innermost node.
    return this.nodes.findLastIndex((it) => gx >= it.x - slack && gy >= it.y - slack && gx <= it.x + it.width + slack && gy <= it.y + it.height + slack);
  }

  /** Returns whether a point of the screen is on the area that opens or closes the node. */
  hitsHandle(at: number, x: number, y: number): boolean {
    const node = this.nodes[at];
    if (!node || !this.opens(at) || this.view.zoom < TITLE_ZOOM) return false;
    const { view } = this;
    const [gx, gy] = [(x - view.x) / view.zoom, (y - view.y) / view.zoom];
    return gx >= node.x + node.width - HANDLE_WIDTH - 4 && gy <= node.y + headHeight(node);
  }

  /** Returns whether a node can be opened or closed. */
  opens(at: number): boolean {
    return this.canOpen && this.#looks[at]?.isStack === true;
  }

  redraw(isWhole: boolean): void {
    this.#isBelowStale ||= isWhole;
    if (this.#frame || this.#isGone) return;
    this.#frame = requestAnimationFrame((time) => {
      this.#frame = 0;
      if (this.#size.width === 0) return;
      if (this.#isBelowStale) this.#drawEdges();
      this.#isBelowStale = false;
      this.#drawNodes(time);
    });
  }

  dispose(): void {
    this.#isGone = true;
    cancelAnimationFrame(this.#frame);
  }

  #begin(context: CanvasRenderingContext2D): void {
    const { ratio } = this.#size;
    const { x, y, zoom } = this.view;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    context.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
  }

  /** Returns the visible part of the drawing. */
  get seen() {
    const { x, y, zoom } = this.view;
    const { width, height } = this.#size;
    return { left: -x / zoom, top: -y / zoom, right: (width - x) / zoom, bottom: (height - y) / zoom };
  }

  #drawEdges(): void {
    const context = this.#below;
    this.#begin(context);
    const { zoom } = this.view;
    const seen = this.seen;
    this.#drawGrounds(context);
    context.strokeStyle = this.colour("--edge");
    context.globalAlpha = zoom < 0.15 ? 0.4 : zoom < TITLE_ZOOM ? 0.6 : 1;
    context.lineWidth = Math.max(1.2, 0.6 / zoom);
    const visible = this.edges.filter((it) => it.right >= seen.left && it.left <= seen.right && it.bottom >= seen.top && it.top <= seen.bottom);
    this.#strokeEdges(context, visible);
    if (zoom >= TITLE_ZOOM) {
      context.fillStyle = this.colour("--edge");
      for (const edge of visible) {
        drawArrow(context, this.#pointsOf(edge), this.leadsRight);
        if (edge.note) this.#drawNote(context, edge);
      }
    }
    context.globalAlpha = 1;
  }

  /** Draws edges in the colour of the context, solid edges first. */
  #strokeEdges(context: CanvasRenderingContext2D, edges: readonly Edge[]): void {
    const { zoom } = this.view;
    for (const isDashed of [false, true]) {
      const some = edges.filter((it) => it.isDashed === isDashed);
      if (some.length === 0) continue;
      context.beginPath();
      for (const edge of some) {
        if (zoom < TITLE_ZOOM) traceLines(context, edge.points);
        else traceCurve(context, this.#pointsOf(edge), this.leadsRight);
      }
      // At a low zoom, dashes keep their length on the screen.
      context.setLineDash(isDashed ? [6, 4].map((it) => it * Math.max(1, 0.5 / zoom)) : []);
      context.stroke();
    }
    context.setLineDash([]);
  }

  /** Returns the points of an edge. An edge from above ends at the gates of its node. */
  #pointsOf({ to, points }: Edge): number[] {
    if (this.leadsRight || !hasGates(this.#looks[to])) return points;
    return points.with(-1, points.at(-1)! - GATE_HEIGHT / 2 - GATE_RISE);
  }

  /** Draws the backgrounds of open nodes, below the edges inside. */
  #drawGrounds(context: CanvasRenderingContext2D): void {
    const seen = this.seen;
    for (const node of this.nodes) {
      if (!node.isOpen || node.x > seen.right || node.x + node.width < seen.left || node.y > seen.bottom || node.y + node.height < seen.top) continue;
      traceBox(context, node.x, node.y, node.width, node.height, 10);
      context.fillStyle = this.colour("--canvas");
      context.fill();
      context.fillStyle = this.colour("--surface");
      context.globalAlpha = 0.6;
      context.fill();
      context.globalAlpha = 1;
    }
  }

  /** Writes the note of an edge on the middle of its first segment. */
  #drawNote(context: CanvasRenderingContext2D, { points, note }: Edge): void {
    const [x, y, a, b] = points as [number, number, number, number];
    context.save();
    context.font = `11px ${this.#colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.strokeStyle = this.colour("--canvas");
    context.strokeText(note, (x + a) / 2, (y + b) / 2);
    context.fillStyle = this.colour("--muted");
    context.fillText(note, (x + a) / 2, (y + b) / 2);
    context.restore();
  }

  #drawNodes(time: number): void {
    const context = this.#above;
    this.#begin(context);
    const seen = this.seen;
    if (this.selected >= 0) this.#drawNeighbours(context);
    let isMoving = false;
    for (const [at, node] of this.nodes.entries()) {
      if (node.x > seen.right || node.x + node.width < seen.left || node.y > seen.bottom || node.y + node.height < seen.top) continue;
      const look = this.#looks[at];
      if (!look) continue;
      isMoving ||= look.tone === "running" || look.tone === "retrying";
      if (node.isOpen) this.#drawFrame(context, node, look, at, time);
      else if (this.view.zoom < TITLE_ZOOM) this.#drawBlock(context, node, look, at);
      else this.#drawCard(context, node, look, at, time);
    }
    if (isMoving && !this.#isStill && this.view.zoom >= TITLE_ZOOM) this.redraw(false);
  }

  #drawNeighbours(context: CanvasRenderingContext2D): void {
    const near = this.edges.filter((it) => it.from === this.selected || it.to === this.selected);
    context.strokeStyle = this.colour("--accent");
    context.lineWidth = Math.max(1.8, 1 / this.view.zoom);
    this.#strokeEdges(context, near);
    context.fillStyle = this.colour("--accent");
    for (const edge of near) {
      drawArrow(context, this.#pointsOf(edge), this.leadsRight);
      if (edge.note && this.view.zoom >= TITLE_ZOOM) {
        this.#drawNote(context, edge);
        context.fillStyle = this.colour("--accent");
      }
    }
  }

  #drawBlock(context: CanvasRenderingContext2D, node: SceneNode, look: Look, at: number): void {
    context.globalAlpha = look.isDimmed ? 0.25 : 1;
    context.fillStyle = this.colour(look.tone);
    context.fillRect(node.x, node.y, node.width, node.height);
    const shape = look.tone === "idle" ? undefined : MARKS.get(look.tone);
    if (shape && this.view.zoom >= SHAPE_ZOOM) {
      // People who cannot see the colours recognise the states of steps by their shapes.
      const scale = (node.height / 16) * 0.9;
      context.save();
      context.translate(node.x + node.width / 2 - 8 * scale, node.y + node.height / 2 - 8 * scale);
      context.scale(scale, scale);
      context.lineWidth = 1.8;
      context.lineCap = "round";
      context.lineJoin = "round";
      context.strokeStyle = this.colour("--surface");
      context.stroke(shape);
      context.restore();
    }
    if (at === this.selected) this.#ring(context, node);
    context.globalAlpha = 1;
  }

  /** Draws an open node: its border, and its name at the top. */
  #drawFrame(context: CanvasRenderingContext2D, node: SceneNode, look: Look, at: number, time: number): void {
    const { x, y, width, height } = node;
    const head = headHeight(node);
    context.globalAlpha = look.isDimmed ? 0.35 : 1;
    if (this.view.zoom >= TITLE_ZOOM) {
      context.save();
      traceBox(context, x, y, width, height, 10);
      context.clip();
      context.fillStyle = this.colour(`${look.tone}-ground`);
      context.fillRect(x, y, width, head);
      context.restore();
    }
    traceBox(context, x, y, width, height, 10);
    context.strokeStyle = look.tone === "idle" ? this.colour("--line-strong") : this.colour(look.tone);
    context.lineWidth = Math.max(1.25, 1 / this.view.zoom);
    context.stroke();
    if (at === this.selected) this.#ring(context, node);
    if (this.view.zoom >= TITLE_ZOOM) {
      const bar = { ...node, height: head };
      drawMark(context, look.tone, x + 12, y + head / 2 - 8, this.#ink(look.tone, time));
      this.#drawWords(context, bar, { ...look, subtitle: "" }, true);
      this.#drawGates(context, node, look.gates ?? []);
    }
    context.globalAlpha = 1;
  }

  /** Draws the arrow that opens or closes a node. */
  #drawHandle(context: CanvasRenderingContext2D, { x, y, width, height, isOpen }: SceneNode): void {
    context.save();
    context.translate(x + width - HANDLE_WIDTH / 2 - 4, y + height / 2);
    if (isOpen) context.rotate(Math.PI / 2);
    context.beginPath();
    context.moveTo(-2.5, -4.5);
    context.lineTo(2.5, 0);
    context.lineTo(-2.5, 4.5);
    context.strokeStyle = this.colour("--muted");
    context.lineWidth = 1.7;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.stroke();
    context.restore();
  }

  #ring(context: CanvasRenderingContext2D, node: SceneNode): void {
    const width = Math.max(2, 2 / this.view.zoom);
    context.strokeStyle = this.colour("--accent");
    context.lineWidth = width;
    traceBox(context, node.x - width, node.y - width, node.width + 2 * width, node.height + 2 * width, 10);
    context.stroke();
  }

  #drawCard(context: CanvasRenderingContext2D, node: SceneNode, look: Look, at: number, time: number): void {
    const { x, y, width, height } = node;
    const tone = this.colour(look.tone);
    context.globalAlpha = look.isDimmed ? 0.35 : 1;
    if (look.isStack) {
      for (const shift of [6, 3]) {
        traceBox(context, x + shift, y + shift, width, height, 8);
        context.fillStyle = this.colour("--surface");
        context.fill();
        context.strokeStyle = this.colour("--line-strong");
        context.lineWidth = 1;
        context.stroke();
      }
    }
    traceBox(context, x, y, width, height, 8);
    context.fillStyle = this.colour("--surface");
    context.fill();
    context.fillStyle = this.colour(`${look.tone}-ground`);
    context.fill();
    context.strokeStyle = look.tone === "idle" ? this.colour("--line-strong") : tone;
    context.lineWidth = look.tone === "idle" ? 1 : 1.25;
    context.setLineDash(look.tone === "skipped" ? [4, 3] : []);
    context.stroke();
    context.setLineDash([]);
    if (at === this.selected) this.#ring(context, node);
    drawMark(context, look.tone, x + 12, y + height / 2 - 8, this.#ink(look.tone, time));
    this.#drawWords(context, node, look, this.opens(at));
    this.#drawGates(context, node, look.gates ?? []);
    context.globalAlpha = 1;
  }

  /** Draws gates on the upper border of a node. They have texts if the zoom is high enough. */
  #drawGates(context: CanvasRenderingContext2D, { x, y: top, width }: SceneNode, gates: readonly Gate[]): void {
    if (gates.length === 0) return;
    const y = top - GATE_RISE;
    const hasWords = this.view.zoom >= DETAIL_ZOOM;
    context.font = `500 10.5px ${this.#colours.font}`;
    let room = width - 16;
    const pills = gates.toReversed().map((gate) => {
      // A condition gets all the space, because the symbol of an approval is clear without a text.
      const hasText = hasWords && (gates.length === 1 || gate.kind === "condition");
      const text = hasText ? this.#fitting(context, gate.text, room - 28, "g") : "";
      const wide = hasText ? context.measureText(text).width + 26 : 20;
      room -= wide + GATE_GAP;
      return { kind: gate.kind, text, wide };
    });
    const whole = width - 16 - room - GATE_GAP;
    let left = this.leadsRight ? x + 10 : x + (width - whole) / 2;
    for (const { kind, text, wide } of pills.reverse()) {
      const tone = kind === "approval" ? "waiting" : "";
      traceBox(context, left, y - GATE_HEIGHT / 2, wide, GATE_HEIGHT, GATE_HEIGHT / 2);
      context.fillStyle = this.colour("--surface");
      context.fill();
      if (tone) {
        context.fillStyle = this.colour("waiting-ground");
        context.fill();
      }
      context.strokeStyle = this.colour(tone || "--line-strong");
      context.lineWidth = 1;
      context.stroke();
      const ink = this.colour(tone || "--muted");
      context.strokeStyle = ink;
      drawGateSign(context, kind, left + 5, y - 5);
      context.fillStyle = ink;
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillText(text, left + 18, y + 0.5);
      left += wide + GATE_GAP;
    }
  }

  #ink(tone: string, time: number) {
    return { colour: this.colour(tone), ground: this.colour("--surface"), turn: this.#isStill ? 0 : (time / 900) * 2 * Math.PI };
  }

  #drawWords(context: CanvasRenderingContext2D, node: SceneNode, look: Look, hasHandle: boolean): void {
    const { x, y, height } = node;
    const width = node.width - (hasHandle ? HANDLE_WIDTH - 4 : 0);
    if (hasHandle) this.#drawHandle(context, node);
    const font = this.#colours.font;
    const hasDetails = this.view.zoom >= DETAIL_ZOOM && look.subtitle !== "";
    const middle = y + height / 2;
    let room = width - 48;
    context.textBaseline = "middle";
    const hasNote = look.note !== "" && this.view.zoom >= DETAIL_ZOOM && !(node.isCell && look.title.length + look.note.length > MAX_CELL_CHARS);
    if (hasNote) {
      context.font = `11px ${font}`;
      context.fillStyle = this.colour("--muted");
      context.textAlign = "right";
      context.fillText(look.note, x + width - 10, hasDetails ? middle + 9 : middle);
      context.textAlign = "left";
    }
    const note = hasNote ? context.measureText(look.note).width + 8 : 0;
    context.font = `550 13px ${font}`;
    context.fillStyle = this.colour("--text");
    context.fillText(this.#fitting(context, look.title, room - (hasDetails ? 0 : note), "t"), x + 36, hasDetails ? middle - 8 : middle);
    if (!hasDetails) return;
    room -= note;
    context.font = `11.5px ${font}`;
    context.fillStyle = this.colour("--muted");
    context.fillText(this.#fitting(context, look.subtitle, room, "s"), x + 36, middle + 9);
  }

  /** Shortens a text to the space. Measuring is slow, so results are cached. */
  #fitting(context: CanvasRenderingContext2D, text: string, room: number, kind: string): string {
    const key = `${kind}${Math.round(room)}:${text}`;
    const known = this.#cut.get(key);
    if (known !== undefined) return known;
    let cut = text.slice(0, 80);
    if (context.measureText(cut).width > room || cut !== text) {
      while (cut.length > 1 && context.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
      cut += "…";
    }
    if (this.#cut.size > 20_000) this.#cut.clear();
    this.#cut.set(key, cut);
    return cut;
  }
}

function hasGates(look: Look | undefined): boolean {
  return look?.gates !== undefined && look.gates.length > 0;
}

/** Returns the height of the part of a node that contains its name. */
function headHeight(node: SceneNode): number {
  return node.isOpen ? Math.min(HEAD_HEIGHT - 6, node.height) : node.height;
}
