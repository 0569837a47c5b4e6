/** Shows the differences between two values, line by line. */

import { useMemo } from "preact/hooks";

import type { Json } from "../api/generated";
import { print } from "../api/json";
import { compare } from "../plan/difference";
import { Plain } from "./plain";

/** Maximum number of lines that are shown. */
const MAX_LINES = 400;

export function LineDifference({ before, after }: { before: Json; after: Json }) {
  const lines = useMemo(() => {
    const text = (value: Json) => (typeof value === "string" ? value : print(value, 2)).split("\n");
    return compare(text(before), text(after));
  }, [before, after]);
  return (
    <pre class="code" tabIndex={0} aria-label="Differences">
      {lines.slice(0, MAX_LINES).map((line, at) => (
        <span key={at} class={`line line-${line.kind}`}>
          <Plain text={`${line.kind === "gone" ? "− " : line.kind === "new" ? "+ " : "  "}${line.text}`} />
        </span>
      ))}
      {lines.length > MAX_LINES && <span class="line faint">and {lines.length - MAX_LINES} more lines</span>}
    </pre>
  );
}
