/** The parts of a value that contain the searched words. */

import { useMemo } from "preact/hooks";

import type { Json } from "../api/generated";
import { Num } from "../api/json";
import { CopyButton } from "../ui/copy-button";
import { Plain } from "../ui/plain";
import { countText } from "../ui/words";
import { pathText, templateText, type Path } from "./path";

const MAX_MATCHES = 200;
const MAX_CHARS = 160;

interface Match {
  path: Path;
  value: Json;
}

/** Returns the plain values whose key or text contains each word. */
function matchesOf(value: Json, words: readonly string[]): { matches: Match[]; total: number } {
  const matches: Match[] = [];
  let total = 0;
  const visit = (it: Json, path: Path): void => {
    if (it !== null && typeof it === "object" && !(it instanceof Num)) {
      const entries: [string | number, Json][] = Array.isArray(it) ? it.map((inner, n) => [n, inner]) : Object.entries(it);
      for (const [key, inner] of entries) visit(inner, [...path, key]);
      return;
    }
    const text = `${path.at(-1) ?? ""} ${String(it)}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return;
    total += 1;
    if (matches.length < MAX_MATCHES) matches.push({ path, value: it });
  };
  visit(value, []);
  return { matches, total };
}

export function Found({ value, words, root }: { value: Json; words: string; root: string | null }) {
  const { matches, total } = useMemo(() => matchesOf(value, words.toLowerCase().split(/\s+/).filter(Boolean)), [value, words]);
  return (
    <>
      <p class="faint json-count" role="status">
        {countText(total, "match").replace("matchs", "matches")}
        {total > matches.length && `, the first ${matches.length} are shown`}
      </p>
      <ul class="json-matches">
        {matches.map(({ path, value: found }) => {
          const text = String(found);
          return (
            <li key={pathText(path, root ?? "")}>
              <span class="json-key">
                <Plain text={pathText(path, root ?? "")} />
              </span>
              <span class="json-string">
                <Plain text={text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text} />
              </span>
              <CopyButton text={() => templateText(path, root)} label={`Copy ${templateText(path, root)}`} />
            </li>
          );
        })}
      </ul>
    </>
  );
}
