/** Drawing functions for the canvases of graphs. */

import { SHAPES } from "../ui/shapes";

/** The shapes of states, by colour. */
export const MARKS: ReadonlyMap<string, Path2D> = new Map(Object.entries(SHAPES).map(([tone, path]) => [tone, new Path2D(path)]));

export function traceBox(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, radius: number): void {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

export function traceLines(context: CanvasRenderingContext2D, points: number[]): void {
  context.moveTo(points[0]!, points[1]!);
  for (let at = 2; at < points.length; at += 2) context.lineTo(points[at]!, points[at + 1]!);
}

/** Draws a curve through points. At each point, it runs in the main direction of the graph. */
export function traceCurve(context: CanvasRenderingContext2D, points: number[], leadsRight: boolean): void {
  let [x, y] = [points[0]!, points[1]!];
  context.moveTo(x, y);
  for (let at = 2; at < points.length; at += 2) {
    const [a, b] = [points[at]!, points[at + 1]!];
    if (leadsRight) context.bezierCurveTo((x + a) / 2, y, (x + a) / 2, b, a, b);
    else context.bezierCurveTo(x, (y + b) / 2, a, (y + b) / 2, a, b);
    [x, y] = [a, b];
  }
}

export function drawArrow(context: CanvasRenderingContext2D, points: number[], leadsRight: boolean): void {
  const [x, y] = [points.at(-2)!, points.at(-1)!];
  context.beginPath();
  context.moveTo(x, y);
  if (leadsRight) {
    context.lineTo(x - 7, y - 3.5);
    context.lineTo(x - 7, y + 3.5);
  } else {
    context.lineTo(x - 3.5, y - 7);
    context.lineTo(x + 3.5, y - 7);
  }
  context.fill();
}

/** Draws the symbol of a gate in a square of 10 pixels: a rhombus for a condition, a person for an approval. */
export function drawGateSign(context: CanvasRenderingContext2D, kind: "condition" | "approval", x: number, y: number): void {
  context.beginPath();
  if (kind === "condition") {
    context.moveTo(x + 5, y + 1);
    context.lineTo(x + 9, y + 5);
    context.lineTo(x + 5, y + 9);
    context.lineTo(x + 1, y + 5);
    context.closePath();
  } else {
    context.arc(x + 5, y + 3, 2, 0, 2 * Math.PI);
    context.moveTo(x + 1.4, y + 9.2);
    context.bezierCurveTo(x + 1.6, y + 5.4, x + 8.4, y + 5.4, x + 8.6, y + 9.2);
  }
  context.lineWidth = 1.2;
  context.lineJoin = "round";
  context.lineCap = "round";
  context.stroke();
}

/** The colours and the rotation of a mark. */
interface Ink {
  colour: string;
  ground: string;
  /** Rotation of a mark for a running state. */
  turn: number;
}

/** Draws the mark of a state, 16 pixels wide. */
export function drawMark(context: CanvasRenderingContext2D, tone: string, x: number, y: number, { colour, ground, turn }: Ink): void {
  context.save();
  context.translate(x, y);
  context.lineWidth = 1.7;
  context.lineCap = "round";
  context.lineJoin = "round";
  const shape = tone === "idle" ? undefined : MARKS.get(tone);
  context.beginPath();
  if (tone === "running") {
    context.arc(8, 8, 6, 0, 2 * Math.PI);
    context.strokeStyle = colour;
    context.globalAlpha *= 0.25;
    context.stroke();
    context.globalAlpha /= 0.25;
    context.beginPath();
    context.arc(8, 8, 6, turn, turn + 1.6);
    context.stroke();
  } else if (shape) {
    context.arc(8, 8, 7.5, 0, 2 * Math.PI);
    context.fillStyle = colour;
    context.fill();
    context.strokeStyle = ground;
    context.stroke(shape);
  } else {
    context.arc(8, 8, tone === "idle" ? 5 : 4, 0, 2 * Math.PI);
    context.strokeStyle = colour;
    if (tone === "idle") context.stroke();
    else {
      context.fillStyle = colour;
      context.fill();
    }
  }
  context.restore();
}
