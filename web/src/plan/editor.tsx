/** A plan as text: numbered lines, and a way to what a diagnostic is about. */

import { useLayoutEffect, useRef } from "preact/hooks";

import type { Problem } from "../api/generated";
import { find } from "./draft";

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

export function Editor({ text, onText, problems, goal }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const lines = text.split("\n").length;
  const marked = marks(text, problems);
  useLayoutEffect(() => {
    const element = area.current;
    const place = goal && element && find(element.value, goal.path);
    if (!place) return;
    if (goal.isWanted) element.focus();
    element.setSelectionRange(...place);
    const line = element.value.slice(0, place[0]).split("\n").length;
    element.scrollTop = Math.max(0, (line - 4) * 19);
  }, [goal]);
  const indent = (event: KeyboardEvent) => {
    // Tab goes on to the next field, as everywhere; a new line begins where the one before did.
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey) return;
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
        {Array.from({ length: lines }, (_, at) => (
          <span key={at} class={marked.get(at + 1) ?? ""}>{`${at + 1}\n`}</span>
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

/** Which lines have something wrong with them. */
function marks(text: string, problems: readonly Problem[]): Map<number, string> {
  const lines = new Map<number, string>();
  for (const it of problems.slice(0, 100)) {
    const place = it.path ? find(text, it.path) : null;
    if (!place) continue;
    const line = text.slice(0, place[0]).split("\n").length;
    if (lines.get(line) !== "mark-bad") lines.set(line, it.severity === "ERROR" ? "mark-bad" : "mark-waiting");
  }
  return lines;
}
