/** Shows texts of the server. Values between backticks are shown as code, and ids as links. */

import { Plain } from "./plain";

/** Returns a number and a noun, in the plural if needed. */
export function countText(n: number, one: string): string {
  return `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
}

/** Returns the planner of a plan in words. */
export function plannerText(planner: string): string {
  return planner === "explicit" ? "written by hand" : `planner: ${planner}`;
}

const ID = /((?:exec|plan|req)_\d+_[0-9a-z]{9})(?![0-9a-z])/;
const PLACES: Record<string, string> = { exec: "/executions/", plan: "/plans/", req: "/requests/" };

/** Returns the URL of an id. Returns null if the text is not an id. */
export function placeOf(text: string): string | null {
  const found = ID.exec(text);
  return found?.[0] === text ? PLACES[text.slice(0, text.indexOf("_"))]! + text : null;
}

export function Words({ text }: { text: string }) {
  const parts = text.split("`");
  // An odd number of backticks cannot form pairs, so they are shown as characters.
  if (parts.length % 2 === 0) return <Linked text={text} />;
  return (
    <span class="words">
      {parts.map((part, at) => {
        const inner = <Linked key={at} text={part} />;
        return at % 2 === 1 ? <code key={at}>{inner}</code> : inner;
      })}
    </span>
  );
}

/** A text in which ids are links. */
export function Linked({ text }: { text: string }) {
  return (
    <>
      {text.split(ID).map((part, at) =>
        at % 2 === 1 ? (
          <a key={at} class="mono" href={PLACES[part.slice(0, part.indexOf("_"))]! + part}>
            {part}
          </a>
        ) : (
          part !== "" && <Plain key={at} text={part} />
        ),
      )}
    </>
  );
}
