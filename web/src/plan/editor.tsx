/** A plan as text: numbered lines, and a way to what a diagnostic is about. */

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";

import type { Problem } from "../api/generated";
import { find, findAll } from "./draft";

/** Where to go: a path, and a number that changes each time. */
export interface Goal {
  path: string;
  count: number;
  /** Whether somebody wants to write there, and not only to see it. */
  isWanted: boolean;
}

interface Props {
  text: string;
  onText: (text: string) => void;
  problems: readonly Problem[];
  goal: Goal | null;
}

/** How high a line is, and what is above the first, in pixels. */
const LINE = 19;
const TOP = 10;
/** The most lines that are marked. */
const MARKS = 100;

export function Editor({ text, onText, problems, goal }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const lines = linesOf(text);
  const numbers = useMemo(() => Array.from({ length: lines }, (_, at) => at + 1).join("\n"), [lines]);
  // Lines are looked for when the diagnostics change, and not at every letter.
  const marked = useMemo(() => marks(text, problems), [problems]);
  useLayoutEffect(() => {
    const element = area.current;
    const place = goal && element && find(element.value, goal.path);
    if (!place) return;
    if (goal.isWanted) element.focus();
    element.setSelectionRange(...place);
    element.scrollTop = Math.max(0, (linesOf(element.value.slice(0, place[0])) - 4) * LINE);
  }, [goal]);
  const indent = (event: KeyboardEvent) => {
    // Tab goes on to the next field, as everywhere; a new line begins where the one before did.
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
    const element = event.currentTarget as HTMLTextAreaElement;
    const before = element.value.slice(0, element.selectionStart);
    const last = before.slice(before.lastIndexOf("\n") + 1);
    const room = /^\s*/.exec(last)![0] + (/[[{]\s*$/.test(last) ? "  " : "");
    event.preventDefault();
    element.setRangeText(`\n${room}`, element.selectionStart, element.selectionEnd, "end");
    onText(element.value);
  };
  return (
    <div class="editor">
      <pre class="editor-lines" ref={gutter} aria-hidden="true">
        {numbers}
        {[...marked].map(([line, kind]) => (
          <span key={line} class={kind} style={{ top: `${TOP + (line - 1) * LINE}px` }}>
            {line}
          </span>
        ))}
      </pre>
      <textarea
        ref={area}
        aria-label="The plan as JSON"
        spellcheck={false}
        autocapitalize="off"
        value={text}
        wrap="off"
        onInput={(event) => onText(event.currentTarget.value)}
        onKeyDown={indent}
        onScroll={(event) => gutter.current && (gutter.current.scrollTop = event.currentTarget.scrollTop)}
      />
    </div>
  );
}

function linesOf(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

/** Which lines have something wrong with them. */
function marks(text: string, problems: readonly Problem[]): Map<number, string> {
  const lines = new Map<number, string>();
  const told = problems.filter((it) => it.path !== "").slice(0, MARKS);
  if (told.length === 0) return lines;
  const places = findAll(
    text,
    told.map((it) => it.path),
  );
  for (const [at, it] of told.entries()) {
    const place = places[at];
    if (!place) continue;
    const line = linesOf(text.slice(0, place[0]));
    if (lines.get(line) !== "mark-bad") lines.set(line, it.severity === "ERROR" ? "mark-bad" : "mark-waiting");
  }
  return lines;
}
