/** Values that came from elsewhere, as text and never as anything else. */

import { useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { Icon } from "./icons";

/** The most letters of a text that are shown at first. */
const TEXT = 400;
/** The most entries of a list that are shown at first, and more each time somebody asks. */
const ENTRIES = 100;

/** A value as a tree that can be folded. */
export function JsonView({ value, label, open = 2 }: { value: Json | undefined; label: string; open?: number }) {
  if (value === undefined) return <p class="faint">nothing</p>;
  return (
    <div class="json" role="group" aria-label={label}>
      <CopyButton text={() => JSON.stringify(value, null, 2)} label={`Copy ${label}`} />
      <Value value={value} open={open} />
    </div>
  );
}

/** How large a value is that the server left out of an event. */
export function omitted(value: Json | undefined): number | null {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
  const bytes = (value as Record<string, Json>).$omitted;
  return typeof bytes === "number" && Object.keys(value).length === 1 ? bytes : null;
}

function Value({ value, open }: { value: Json; open: number }) {
  if (typeof value === "string") return <Text text={value} />;
  if (value === null || typeof value !== "object") return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const entries: [string | null, Json][] = Array.isArray(value) ? value.map((it) => [null, it]) : Object.entries(value);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return <span class="json-mark">{begin + end}</span>;
  return <Group entries={entries} begin={begin!} end={end!} open={open} />;
}

function Group({ entries, begin, end, open }: { entries: [string | null, Json][]; begin: string; end: string; open: number }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [count, setCount] = useState(ENTRIES);
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
            {key !== null && <span class="json-key">{key}</span>}
            <Value value={it} open={open - 1} />
          </div>
        ))}
        {entries.length > count && (
          <button type="button" class="link" onClick={() => setCount(count + 10 * ENTRIES)}>
            {entries.length - count} more
          </button>
        )}
      </div>
      <span class="json-mark">{end}</span>
    </>
  );
}

function Text({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > TEXT;
  return (
    <span class="json-string">
      {isLong && !isWhole ? `${text.slice(0, TEXT)}…` : text === "" ? '""' : text}
      {isLong && (
        <button type="button" class="link" onClick={() => setWhole(!isWhole)}>
          {isWhole ? "less" : `all ${text.length.toLocaleString("en")} characters`}
        </button>
      )}
    </span>
  );
}

export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text());
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return (
    <button type="button" class="ghost icon-only copy" aria-label={label} title={label} onClick={copy}>
      <Icon name={isDone ? "check" : "copy"} />
    </button>
  );
}
