/** Words of the server: values stand between backticks, and ids lead to what they name. */

import { Plain } from "./plain";

/** Says how many there are of something, with the word for one of it. */
export function counted(n: number, one: string): string {
  return `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
}

/** Says who made a plan. */
export function plannerText(planner: string): string {
  return planner === "explicit" ? "written by hand" : `planner: ${planner}`;
}

const ID = /((?:exec|plan|req)_\d+_[0-9a-z]{9})(?![0-9a-z])/;
const PLACES: Record<string, string> = { exec: "/executions/", plan: "/plans/", req: "/requests/" };

/** Returns where an id leads; nothing where a text is no id. */
export function placeOf(text: string): string | null {
  const found = ID.exec(text);
  return found?.[0] === text ? PLACES[text.slice(0, text.indexOf("_"))]! + text : null;
}

export function Words({ text }: { text: string }) {
  const parts = text.split("`");
  // Those that do not come in pairs are letters like any other.
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
