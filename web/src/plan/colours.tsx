/** The visible lines of a plan's text, in colours, behind the text area. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

/** The part of the text area that is visible, in pixels. */
export interface View {
  top: number;
  left: number;
  height: number;
}

interface Props {
  text: string;
  view: View;
  lineHeight: number;
  topSpace: number;
}

/** Longer lines have no colours. */
const MAX_COLOURED_CHARS = 4_000;
const TOKEN = /("(?:[^"\\]|\\.)*"?)(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;
const TEMPLATE = /(\{\{[^{}]*\}\})/;

export function Colours({ text, view, lineHeight, topSpace }: Props) {
  const lines = useMemo(() => text.split("\n"), [text]);
  const first = Math.max(0, Math.floor((view.top - topSpace) / lineHeight));
  const last = Math.min(lines.length, first + Math.ceil(view.height / lineHeight) + 2);
  const offset = topSpace + first * lineHeight - view.top;
  return (
    <pre class="editor-colours" aria-hidden="true">
      <span class="editor-colours-lines" style={{ transform: `translate(${-view.left}px, ${offset}px)` }}>
        {lines.slice(first, last).map((line, n) => (
          <span key={first + n} class="editor-line">
            {coloured(line)}
            {"\n"}
          </span>
        ))}
      </span>
    </pre>
  );
}

/** JSON has no token that contains a line feed, so each line is coloured by itself. */
function coloured(line: string): ComponentChildren {
  if (line.length > MAX_COLOURED_CHARS) return line;
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const found of line.matchAll(TOKEN)) {
    const [whole, string, colon] = found;
    if (found.index > end) parts.push(line.slice(end, found.index));
    end = found.index + whole.length;
    if (string === undefined) parts.push(<span class="json-number">{whole}</span>);
    else if (colon !== undefined) parts.push(<span class="colour-key">{string}</span>, colon);
    else parts.push(<span class="colour-string">{templates(string)}</span>);
  }
  parts.push(line.slice(end));
  return parts;
}

function templates(string: string): ComponentChildren {
  if (!string.includes("{{")) return string;
  return string.split(TEMPLATE).map((part, at) => (at % 2 === 1 ? <span class="colour-template">{part}</span> : part));
}
