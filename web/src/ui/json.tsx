/** Shows values from tools and users. They are always shown as text, never as HTML. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, Num, print } from "../api/json";
import { Icon } from "./icons";
import { Plain } from "./plain";

/** Number of characters of a text that are shown at first. */
const FIRST_CHARS = 400;
/** Number of entries of a list or object that are shown at first. Each click adds ten times this number. */
const ENTRIES_PER_PAGE = 100;

/** A value as a tree whose nodes can be closed. */
export function JsonView({ value, label, open = 2 }: { value: Json | undefined; label: string; open?: number }) {
  if (value === undefined) return <p class="faint">nothing</p>;
  return (
    <div class="json" role="group" aria-label={label}>
      <CopyButton text={() => print(value, 2)} label={`Copy ${label}`} />
      <Value value={value} open={open} />
    </div>
  );
}

/** Returns the size in bytes of a value that the server left out of an event, or null. */
export function omittedBytes(value: Json | undefined): number | null {
  if (!isFields(value)) return null;
  const bytes = value.$omitted;
  return typeof bytes === "number" && Object.keys(value).length === 1 ? bytes : null;
}

function Value({ value, open }: { value: Json; open: number }) {
  if (typeof value === "string") return <Text text={value} />;
  if (value instanceof Num) return <span class="json-number">{value.text}</span>;
  if (value === null || typeof value !== "object") return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const entries: [string | null, Json][] = Array.isArray(value) ? value.map((it) => [null, it]) : Object.entries(value);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return <span class="json-mark">{begin + end}</span>;
  return <Group entries={entries} begin={begin!} end={end!} open={open} />;
}

function Group({ entries, begin, end, open }: { entries: [string | null, Json][]; begin: string; end: string; open: number }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [count, setCount] = useState(ENTRIES_PER_PAGE);
  const about = `${entries.length} ${entries.length === 1 ? "entry" : "entries"}`;
  if (!isOpen) {
    return (
      <button type="button" class="json-fold" aria-expanded="false" onClick={() => setOpen(true)}>
        {begin} <span class="faint">{about}</span> {end}
      </button>
    );
  }
  return (
    <>
      <button type="button" class="json-fold" aria-expanded="true" aria-label={`Fold ${about}`} onClick={() => setOpen(false)}>
        {begin}
      </button>
      <div class="json-inside">
        {entries.slice(0, count).map(([key, it], at) => (
          <div class="json-entry" key={key ?? at}>
            {key !== null && (
              <span class="json-key">
                <Plain text={key} />
              </span>
            )}
            <Value value={it} open={open - 1} />
          </div>
        ))}
        {entries.length > count && (
          <button type="button" class="link" onClick={() => setCount(count + 10 * ENTRIES_PER_PAGE)}>
            {entries.length - count} more
          </button>
        )}
      </div>
      <span class="json-mark">{end}</span>
    </>
  );
}

/** A text in quotes, so that `"1"` differs from `1`. */
function Text({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > FIRST_CHARS;
  return (
    <span class="json-string">
      <Quote />
      <Plain text={isLong && !isWhole ? `${text.slice(0, FIRST_CHARS)}…` : text} />
      <Quote />
      {isLong && (
        <button type="button" class="link" onClick={() => setWhole(!isWhole)}>
          {isWhole ? "less" : `all ${text.length.toLocaleString("en")} characters`}
        </button>
      )}
    </span>
  );
}

function Quote(): ComponentChildren {
  return <span class="json-mark">"</span>;
}

/** Copies a text to the clipboard. Without HTTPS, browsers offer only the older `execCommand` for this. */
async function copyText(text: string): Promise<boolean> {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // The browser denied access to the clipboard, so the code below uses `execCommand`.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  const before = document.activeElement as HTMLElement | null;
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus();
  }
}

export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [state, setState] = useState<"" | "done" | "failed">("");
  const copy = async () => {
    setState((await copyText(text())) ? "done" : "failed");
    setTimeout(() => setState(""), 1_500);
  };
  const said = { "": label, done: "Copied", failed: "The browser does not let the page copy" }[state];
  return (
    <button type="button" class="ghost icon-only copy" aria-label={said} title={said} onClick={copy}>
      <Icon name={{ "": "copy", done: "check", failed: "close" }[state] as "copy"} />
    </button>
  );
}
