/** One value as a tree. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, Num } from "../api/json";
import { copyText } from "../ui/copy-button";
import { Plain, plain } from "../ui/plain";
import { BlobView, binaryIn } from "./binary";
import { templateText, type Path } from "./path";
import { isTable, TableView } from "./table";

/** Number of characters of a text that are shown at first. */
const FIRST_CHARS = 400;
/** Number of entries of a list or object that are shown at first. Each click adds ten times this number. */
const ENTRIES_PER_PAGE = 100;

interface Props {
  value: Json;
  open: number;
  path: Path;
  root: string | null;
}

export function Value({ value, open, path, root }: Props) {
  if (typeof value === "string") return <Text text={value} />;
  if (value instanceof Num) return <span class="json-number">{value.text}</span>;
  if (value === null || typeof value !== "object") return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const isList = Array.isArray(value);
  const entries: [string | number, Json][] = isList ? value.map((it, n) => [n, it]) : Object.entries(value);
  if (entries.length === 0) return <span class="json-mark">{isList ? "[]" : "{}"}</span>;
  const binary = binaryIn(value);
  return (
    <>
      {binary && <BlobView binary={binary} />}
      <Group value={value} entries={entries} open={open} path={path} root={root} />
    </>
  );
}

interface GroupProps extends Omit<Props, "value"> {
  value: Json;
  entries: [string | number, Json][];
}

function Group({ value, entries, open, path, root }: GroupProps) {
  const [isOpen, setOpen] = useState(open > 0);
  const [asTable, setTable] = useState(false);
  const [count, setCount] = useState(ENTRIES_PER_PAGE);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const about = `${entries.length} ${entries.length === 1 ? "entry" : "entries"}`;
  if (!isOpen) {
    return (
      <button type="button" class="json-fold" aria-expanded="false" onClick={() => setOpen(true)}>
        {begin} <span class="faint">{Array.isArray(value) ? about : preview(value, entries.length)}</span> {end}
      </button>
    );
  }
  return (
    <>
      <button type="button" class="json-fold" aria-expanded="true" aria-label={`Fold ${about}`} onClick={() => setOpen(false)}>
        {begin}
      </button>
      {isTable(value) && (
        <button type="button" class="link" aria-pressed={asTable} onClick={() => setTable(!asTable)}>
          {asTable ? "as a tree" : "as a table"}
        </button>
      )}
      {asTable && isTable(value) ? (
        <TableView rows={value} />
      ) : (
        <div class="json-inside">
          {entries.slice(0, count).map(([key, it]) => (
            <div class="json-entry" key={key}>
              <Key name={key} path={[...path, key]} root={root} />
              <Value value={it} open={open - 1} path={[...path, key]} root={root} />
            </div>
          ))}
          {entries.length > count && (
            <button type="button" class="link" onClick={() => setCount(count + 10 * ENTRIES_PER_PAGE)}>
              {entries.length - count} more
            </button>
          )}
        </div>
      )}
      <span class="json-mark">{end}</span>
    </>
  );
}

/** A key or index. A click copies its template. The search offers the same to keyboards, without a stop at each key. */
function Key({ name, path, root }: { name: string | number; path: Path; root: string | null }) {
  const [isCopied, setCopied] = useState(false);
  const template = templateText(path, root);
  const copy = async () => {
    if (!(await copyText(template))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), 1_200);
  };
  return (
    <span class={typeof name === "number" ? "json-key is-index" : "json-key"} title={isCopied ? "Copied" : `Copy ${template}`} onClick={() => void copy()}>
      <Plain text={isCopied ? `${name} ✓` : String(name)} />
    </span>
  );
}

/** Number of characters in the preview of an object. */
const PREVIEW_CHARS = 60;

/** Returns the first plain fields of an object: `id: "ord-0", customer: "c0", 2 more`. */
function preview(value: Json, total: number): string {
  if (!isFields(value)) return "";
  const shown: string[] = [];
  let length = 0;
  for (const [key, it] of Object.entries(value)) {
    if (it !== null && typeof it === "object" && !(it instanceof Num)) continue;
    const text = `${key}: ${typeof it === "string" ? JSON.stringify(it.length > 24 ? `${it.slice(0, 24)}…` : it) : String(it)}`;
    length += text.length;
    if (length > PREVIEW_CHARS) break;
    shown.push(plain(text));
  }
  const left = total - shown.length;
  if (shown.length === 0) return `${total} ${total === 1 ? "entry" : "entries"}`;
  return shown.join(", ") + (left > 0 ? `, ${left} more` : "");
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
