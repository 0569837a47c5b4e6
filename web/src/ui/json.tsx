/** Shows values from tools and users. They are always shown as text, never as HTML. */

import { useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, print } from "../api/json";
import { download } from "../viewer/download";
import { Found } from "../viewer/search";
import { Value } from "../viewer/value";
import { CopyButton } from "./copy-button";
import { Icon } from "./icons";

export { CopyButton } from "./copy-button";

interface Props {
  value: Json | undefined;
  label: string;
  /** Number of levels that are open at first. */
  open?: number;
  /**
   * The name that templates use for the value, such as a step id or `input`. Empty if the keys of the value are such
   * names. Null if no template can name the value.
   */
  root?: string | null;
}

/** Values whose text is shorter than this need no search and no download. */
const SMALL_CHARS = 200;

/** A value as a tree whose nodes can be closed, with a search and a download. */
export function JsonView({ value, label, open = 2, root = null }: Props) {
  const [words, setWords] = useState<string | null>(null);
  if (value === undefined) return <p class="faint">nothing</p>;
  const isSmall = value === null || typeof value !== "object" || isShort(value);
  return (
    <div class="json" role="group" aria-label={label}>
      <span class="json-tools">
        {!isSmall && (
          <>
            <button type="button" class="ghost icon-only" aria-label={`Search in ${label}`} title="Search" aria-expanded={words !== null} onClick={() => setWords(words === null ? "" : null)}>
              <Icon name="search" />
            </button>
            <button type="button" class="ghost icon-only" aria-label={`Download ${label}`} title="Download as JSON" onClick={() => download(`${label}.json`, "application/json", print(value, 2))}>
              <Icon name="download" />
            </button>
          </>
        )}
        <CopyButton text={() => print(value, 2)} label={`Copy ${label}`} />
      </span>
      {words !== null && <input type="search" class="json-search" aria-label={`Words in ${label}`} placeholder="Key or value" value={words} onInput={(event) => setWords(event.currentTarget.value)} />}
      {words !== null && words.trim() !== "" ? <Found value={value} words={words} root={root} /> : <Value value={value} open={open} path={[]} root={root} />}
    </div>
  );
}

/** Returns whether the text of a value is short, without writing the text of a large value. */
function isShort(value: Json): boolean {
  let left = SMALL_CHARS;
  const count = (it: Json): void => {
    if (left <= 0) return;
    if (it === null || typeof it !== "object") left -= String(it).length + 1;
    else if (Array.isArray(it)) it.forEach(count);
    else if (isFields(it)) Object.entries(it).forEach(([key, inner]) => ((left -= key.length), count(inner)));
    else left -= 8;
  };
  count(value);
  return left > 0;
}

/** Returns the size in bytes of a value that the server left out of an event, or null. */
export function omittedBytes(value: Json | undefined): number | null {
  if (!isFields(value)) return null;
  const bytes = value.$omitted;
  return typeof bytes === "number" && Object.keys(value).length === 1 ? bytes : null;
}
