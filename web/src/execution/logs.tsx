/** Shows the progress reports of a step, the errors of its attempts, and what it wrote on stderr. */

import { useState } from "preact/hooks";

import { Plain } from "../ui/plain";
import { formatClockTime } from "../ui/time";
import type { Lines } from "./lines";
import { Section } from "./panel";

/** Number of lines that are shown at first. */
const FIRST_LINES = 100;

export function Logs({ lines, index }: { lines: Lines; index: number | null }) {
  const [isWhole, setWhole] = useState(false);
  const all = index === null ? lines.all : lines.all.filter((it) => it.index === index);
  if (all.length === 0) return null;
  const shown = isWhole ? all : all.slice(-FIRST_LINES);
  const left = all.length - shown.length;
  const isTried = all.some((it) => it.attempt > 1);
  return (
    <Section title="Logs">
      {left > 0 && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          Show {left.toLocaleString("en")} earlier lines
        </button>
      )}
      {left === 0 && lines.before > 0 && <p class="faint">Earlier lines are in the list of events.</p>}
      <ol class="logs" tabIndex={0} aria-label="What it said">
        {shown.map((it, at) => (
          <li key={at} class={it.isBad ? "is-bad" : ""}>
            <time dateTime={new Date(it.at).toISOString()}>{formatClockTime(new Date(it.at).toISOString())}</time>
            <span>
              {(isTried || (index === null && it.index !== null)) && (
                <span class="faint">
                  {index === null && it.index !== null && `[${it.index}] `}
                  {isTried && `attempt ${it.attempt} `}
                </span>
              )}
              <Plain text={it.text} />
            </span>
          </li>
        ))}
      </ol>
    </Section>
  );
}
