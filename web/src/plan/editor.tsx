/** A text editor for plans, with line numbers and marked diagnostics. */

import { useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Problem } from "../api/generated";
import type { Fields } from "../api/json";
import { complete, type Known, type Offers } from "./complete";
import { Colours, type View } from "./colours";
import { find, findAll } from "./draft";
import { OfferList } from "./offers";

/** A path to scroll to. `count` changes with each request, so that the same path works twice. */
export interface Goal {
  path: string;
  count: number;
  /** True if the user wants to write at the path, so the editor gets the focus. */
  isWanted: boolean;
}

interface Props {
  text: string;
  onText: (text: string) => void;
  problems: readonly Problem[];
  goal: Goal | null;
  /** The steps of the last valid text, and the tools, for suggestions. */
  steps: readonly Fields[];
  tools: readonly Known[];
}

/** Height of a line, and the space above the first line, in pixels. */
const LINE_HEIGHT = 19;
const TOP_SPACE = 10;
/** Maximum number of diagnostics whose lines are marked. */
const MAX_MARKS = 100;

export function Editor({ text, onText, problems, goal, steps, tools }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const lines = linesOf(text);
  const numbers = useMemo(() => Array.from({ length: lines }, (_, at) => at + 1).join("\n"), [lines]);
  // The lines are computed when the diagnostics change, and not at every key.
  const marked = useMemo(() => marks(text, problems), [problems]);
  useLayoutEffect(() => {
    const element = area.current;
    const place = goal && element && find(element.value, goal.path);
    if (!place) return;
    if (goal.isWanted) element.focus();
    element.setSelectionRange(...place);
    element.scrollTop = Math.max(0, (linesOf(element.value.slice(0, place[0])) - 4) * LINE_HEIGHT);
  }, [goal]);
  const [view, setView] = useState<View>({ top: 0, left: 0, height: 800 });
  const look = () => {
    const { scrollTop: top, scrollLeft: left, clientHeight: height } = area.current!;
    setView((old) => (old.top === top && old.left === left && old.height === height ? old : { top, left, height }));
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(look);
    observer.observe(area.current!);
    return () => observer.disconnect();
  }, []);
  // A change of the text can move the part that is visible.
  useLayoutEffect(look, [text]);
  const list = useId();
  const [offered, setOffered] = useState<(Offers & { chosen: number; line: number; column: number }) | null>(null);
  const offer = () => {
    const element = area.current!;
    const at = element.selectionStart;
    const found = element.selectionEnd === at ? complete(element.value, at, steps, tools) : null;
    if (!found) return setOffered(null);
    const before = element.value.slice(0, found.from);
    const line = before.lastIndexOf("\n") + 1;
    setOffered({ ...found, chosen: 0, line: linesOf(before) - 1, column: found.from - line });
  };
  const choose = (chosen: number) => {
    const element = area.current!;
    const text = offered?.offers[chosen]?.text;
    if (!offered || text === undefined) return;
    element.setRangeText(JSON.stringify(text).slice(1, -1), offered.from, offered.to, "end");
    setOffered(null);
    onText(element.value);
  };
  /** Handles keys that control the suggestions. Returns whether a key was handled. */
  const steer = (event: KeyboardEvent): boolean => {
    if (event.key === " " && event.ctrlKey) {
      offer();
      return true;
    }
    if (!offered) return false;
    const { chosen, offers } = offered;
    if (event.key === "ArrowDown") setOffered({ ...offered, chosen: (chosen + 1) % offers.length });
    else if (event.key === "ArrowUp") setOffered({ ...offered, chosen: (chosen - 1 + offers.length) % offers.length });
    else if (event.key === "Enter") choose(chosen);
    else if (event.key === "Escape") setOffered(null);
    else return false;
    return true;
  };
  const indent = (event: KeyboardEvent) => {
    if (!event.isComposing && steer(event)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") setOffered(null);
    // The Tab key goes to the next field, as on every page. A new line gets the indentation of the line before.
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
          <span key={line} class={kind} style={{ top: `${TOP_SPACE + (line - 1) * LINE_HEIGHT}px` }}>
            {line}
          </span>
        ))}
      </pre>
      <div class="editor-text">
        <Colours text={text} view={view} lineHeight={LINE_HEIGHT} topSpace={TOP_SPACE} />
        <textarea
          ref={area}
          aria-label="The plan as JSON"
          spellcheck={false}
          autocapitalize="off"
          value={text}
          wrap="off"
          aria-autocomplete="list"
          {...(offered ? { "aria-controls": list, "aria-activedescendant": `${list}-${offered.chosen}` } : {})}
          onInput={(event) => {
            onText(event.currentTarget.value);
            offer();
          }}
          onKeyDown={indent}
          onBlur={() => setOffered(null)}
          onClick={() => setOffered(null)}
          onScroll={(event) => {
            if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
            look();
            // The list of suggestions scrolls with the text.
            setOffered((it) => it && { ...it });
          }}
        />
      </div>
      {offered && area.current && (
        <OfferList
          id={list}
          offers={offered.offers}
          chosen={offered.chosen}
          line={offered.line}
          column={offered.column}
          height={area.current.clientHeight}
          scroll={{ left: area.current.scrollLeft, top: area.current.scrollTop }}
          onChoose={choose}
        />
      )}
    </div>
  );
}

function linesOf(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

/** Returns the lines with diagnostics. */
function marks(text: string, problems: readonly Problem[]): Map<number, string> {
  const lines = new Map<number, string>();
  const told = problems.filter((it) => it.path !== "").slice(0, MAX_MARKS);
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
