/** Suggestions at the cursor in the text of a plan. */

import { FIELDS, type Json } from "../api/generated";
import { isFields, type Fields } from "../api/json";
import { resolveReferences } from "../tools/form";
import { idsOf } from "./draft";

/** A tool that can be suggested. */
export interface Known {
  name: string;
  qualifiedName: string;
  description: string;
  inputSchema: Json;
  outputSchema: Json;
}

export interface Offer {
  text: string;
  about: string;
}

export interface Offers {
  /** Start of the text that the chosen suggestion replaces. */
  from: number;
  to: number;
  offers: Offer[];
}

/** Maximum number of suggestions. */
const MAX_OFFERS = 50;

interface Place {
  path: (string | number)[];
  /** Start of the string that contains the cursor, after its opening quote. */
  begin: number;
  isKey: boolean;
  /** The names of the fields before the cursor in each enclosing object, outermost first. */
  names: string[][];
}

/** Returns the JSON path of the string that contains the cursor, or null if no string does. */
function placeOf(text: string, cursor: number): Place | null {
  interface Level {
    isObject: boolean;
    key: string | number;
    wantsKey: boolean;
    names: string[];
  }
  const levels: Level[] = [];
  for (let at = 0; at < cursor; at += 1) {
    const letter = text[at];
    const level = levels.at(-1);
    if (letter === '"') {
      const begin = at + 1;
      for (at += 1; at < cursor && text[at] !== '"'; at += 1) if (text[at] === "\\") at += 1;
      if (at >= cursor) {
        const isKey = level?.isObject === true && level.wantsKey;
        const around = isKey ? levels.slice(0, -1) : levels;
        return { path: around.map((it) => it.key), begin, isKey, names: levels.map((it) => it.names) };
      }
      if (level?.isObject && level.wantsKey) {
        level.key = text.slice(begin, at);
        level.names.push(level.key);
      }
    } else if (letter === "{" || letter === "[") {
      levels.push({ isObject: letter === "{", key: letter === "{" ? "" : 0, wantsKey: letter === "{", names: [] });
    } else if (letter === "}" || letter === "]") levels.pop();
    else if (letter === ":" && level) level.wantsKey = false;
    else if (letter === "," && level) {
      if (level.isObject) level.wantsKey = true;
      else level.key = Number(level.key) + 1;
    }
  }
  return null;
}

/** Returns suggestions for the cursor. Returns null if the cursor is not in a string, or if nothing fits. */
export function complete(text: string, cursor: number, steps: readonly Fields[], tools: readonly Known[]): Offers | null {
  const place = placeOf(text, cursor);
  if (!place) return null;
  const written = text.slice(place.begin, cursor);
  const hole = place.isKey ? -1 : written.lastIndexOf("{{");
  if (hole >= 0 && !written.slice(hole).includes("}}")) return inHole(text, cursor, place.begin + hole + 2, place, steps, tools);
  const end = text.slice(cursor).search(/["\n]/);
  const to = end < 0 ? text.length : cursor + end;
  const fits = (offers: Offer[]): Offers | null => {
    const word = written.toLowerCase();
    const found = offers.filter((it) => it.text.toLowerCase().includes(word) && it.text !== text.slice(place.begin, to));
    found.sort((a, b) => Number(b.text.toLowerCase().startsWith(word)) - Number(a.text.toLowerCase().startsWith(word)));
    return found.length > 0 ? { from: place.begin, to, offers: found.slice(0, MAX_OFFERS) } : null;
  };
  return fits(place.isKey ? keysAt(place, steps, tools) : valuesAt(place, steps, tools));
}

/**
 * Splits the path of a place. `rest` is the path inside the innermost step, without `tools` and the number. `step` is
 * this step if it belongs to the outermost plan.
 */
function within({ path }: Place, steps: readonly Fields[]): { rest: (string | number)[]; step: Fields | undefined } {
  // `steps` contains only the steps of the outermost plan, and no step of an inline plan.
  const at = path.lastIndexOf("tools");
  const isOutermost = path.indexOf("tools") === at;
  const number = path[at + 1];
  return { rest: at < 0 ? path : path.slice(at + 2), step: isOutermost && typeof number === "number" ? steps[number] : undefined };
}

function keysAt(place: Place, steps: readonly Fields[], tools: readonly Known[]): Offer[] {
  const { rest, step } = within(place, steps);
  const taken = place.names.at(-1) ?? [];
  const offered = (names: readonly string[]) => names.filter((it) => !taken.includes(it)).map((it) => ({ text: it, about: "" }));
  if (!place.path.includes("tools")) return place.path.length === 0 ? offered(FIELDS.PlanInput) : [];
  if (rest.length === 0) return offered(FIELDS.ToolExecutionInput);
  if (rest[0] === "retry" && rest.length === 1) return offered(FIELDS.RetryInput);
  if (rest[0] !== "parameters" || !step) return [];
  const schema = schemaAt(toolOf(step, tools)?.inputSchema, rest.slice(1));
  return propertiesOf(schema).filter((it) => !taken.includes(it.text));
}

function valuesAt(place: Place, steps: readonly Fields[], tools: readonly Known[]): Offer[] {
  const { rest, step } = within(place, steps);
  if (!place.path.includes("tools")) return [];
  const last = rest.at(-1);
  if (last === "name" || last === "toolName") {
    if (rest.length === 1 || rest[0] === "compensate") return tools.map((it) => ({ text: it.qualifiedName, about: it.description }));
  }
  if (rest[0] === "dependsOn") return others(steps, step);
  if (rest[0] === "onError") return ["fail", "continue", "ignore", "wait"].map((it) => ({ text: it, about: "" }));
  if (rest[0] !== "parameters" || !step) return [];
  const schema = schemaAt(toolOf(step, tools)?.inputSchema, rest.slice(1));
  return Array.isArray(schema.enum) ? schema.enum.filter((it) => typeof it === "string").map((it) => ({ text: it, about: "" })) : [];
}

/** Suggests what a template can name, and after the id of a step the fields of its tool's output. */
function inHole(text: string, cursor: number, begin: number, place: Place, steps: readonly Fields[], tools: readonly Known[]): Offers | null {
  const written = text.slice(begin, cursor).trimStart();
  const from = cursor - written.length;
  const parts = written.split(".");
  const prefix = parts.at(-1)!.toLowerCase();
  const { step } = within(place, steps);
  const ids = idsOf(steps);
  let offers: Offer[];
  // Ids of steps can contain dots, so the longest matching id is used.
  const named = ids.filter((it) => written.startsWith(`${it}.`)).sort((a, b) => b.length - a.length)[0];
  if (named !== undefined) {
    const target = steps[ids.indexOf(named)]!;
    const inner = written.slice(named.length + 1).split(".");
    const schema = schemaAt(toolOf(target, tools)?.outputSchema, inner.slice(0, -1));
    offers = propertiesOf(schema);
  } else {
    offers = others(steps, step);
    if (step?.forEach) offers.unshift({ text: "item", about: "the item of the loop" }, { text: "index", about: "its number, from 0" });
    offers.push({ text: "input", about: "what the plan is given" });
  }
  const word = named === undefined ? written.toLowerCase() : prefix;
  const found = offers.filter((it) => it.text.toLowerCase().startsWith(word) && it.text.toLowerCase() !== word).slice(0, MAX_OFFERS);
  const rest = /^[\w-]*/.exec(text.slice(cursor))![0].length;
  return found.length > 0 ? { from: named === undefined ? from : cursor - prefix.length, to: cursor + rest, offers: found } : null;
}

function others(steps: readonly Fields[], step: Fields | undefined): Offer[] {
  return idsOf(steps).flatMap((id, at) => (steps[at] === step || id === "" ? [] : [{ text: id, about: String(steps[at]!.name ?? steps[at]!.toolName ?? "a plan") }]));
}

function toolOf(step: Fields, tools: readonly Known[]): Known | undefined {
  const name = step.name ?? step.toolName;
  return tools.find((it) => it.qualifiedName === name) ?? tools.find((it) => it.name === name);
}

/** Returns the part of a JSON Schema that describes the value at a path. */
function schemaAt(schema: Json | undefined, path: readonly (string | number)[]): Fields {
  const root = isFields(schema) ? schema : {};
  let here = resolveReferences(root, root);
  for (const part of path) {
    const inner = typeof part === "number" || /^\d+$/.test(part) ? here.items : isFields(here.properties) ? here.properties[part] : undefined;
    here = resolveReferences(inner, root);
  }
  return here;
}

function propertiesOf(schema: Fields): Offer[] {
  if (!isFields(schema.properties)) return [];
  return Object.entries(schema.properties).map(([text, it]) => ({ text, about: isFields(it) ? String(it.description ?? it.type ?? "") : "" }));
}
