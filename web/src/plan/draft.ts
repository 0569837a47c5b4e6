/** Reads and writes the text of plans. Numbers and unknown fields stay as they were written. */

import { FIELDS, type Json, type PlanInput, type Problem } from "../api/generated";
import { isFields, parse, print, type Fields } from "../api/json";

/**
 * Number of steps above which each step is written in one line. Browsers are slow in text fields with tens of
 * thousands of lines.
 */
const MAX_INDENTED_STEPS = 300;

/** Writes a plan as text. */
export function planText(plan: Json): string {
  if (!isFields(plan) || !Array.isArray(plan.tools) || plan.tools.length <= MAX_INDENTED_STEPS) return print(plan, 2);
  const parts = Object.entries(plan).map(([name, it]) => {
    if (name !== "tools" || !Array.isArray(it)) return `  ${print(name)}: ${print(it)}`;
    return `  "tools": [\n${it.map((step) => `    ${print(step)}`).join(",\n")}\n  ]`;
  });
  return `{\n${parts.join(",\n")}\n}`;
}

/** A draft that was parsed. */
export interface Draft {
  /** The whole text as JSON. */
  whole: Fields;
  steps: Fields[];
  /** The draft as the API accepts it. */
  input: PlanInput;
}

const RENAMED = [["plan", "inlinePlan"]] as const;

/** Parses the text of a draft. Returns diagnostics if the text is not a draft. */
export function readDraft(text: string): Draft | { problems: Problem[] } {
  if (text.trim() === "") return { problems: [makeProblem("the text is empty: a plan is an object with `tools`", "")] };
  let value: Json;
  try {
    value = parse(text);
  } catch (error) {
    return { problems: [makeProblem((error as Error).message, "")] };
  }
  if (Array.isArray(value)) value = { tools: value };
  const problems: Problem[] = [];
  const input = planInput(value, "", problems);
  if (problems.length > 0 || !isFields(value)) return { problems };
  return { whole: value, steps: value.tools as Fields[], input: input as unknown as PlanInput };
}

/** Converts a plan for the API, in which a plan inside a step has the field `inlinePlan` and not `plan`. */
function planInput(value: Json, path: string, problems: Problem[]): Json {
  if (!isFields(value)) {
    problems.push(makeProblem("a plan is an object with `tools`", path));
    return value;
  }
  if (!Array.isArray(value.tools)) {
    problems.push(makeProblem("`tools` is missing: the list of steps", path));
    return value;
  }
  reportUnknownFields(value, FIELDS.PlanInput, path, problems);
  const at = path === "" ? "tools" : `${path}.tools`;
  return { ...value, tools: value.tools.map((it, n) => stepInput(it, `${at}[${n}]`, problems)) };
}

function stepInput(value: Json, path: string, problems: Problem[]): Json {
  if (!isFields(value)) {
    problems.push(makeProblem("a step is an object with `name` or `plan`", path));
    return value;
  }
  reportUnknownFields(value, FIELDS.ToolExecutionInput, path, problems);
  if (isFields(value.retry)) reportUnknownFields(value.retry, FIELDS.RetryInput, `${path}.retry`, problems);
  const step = { ...value };
  for (const [written, named] of RENAMED) {
    if (!isFields(step[written])) continue;
    if (step[named] !== undefined) problems.push(makeProblem(`a step has \`${written}\` or \`${named}\`, not both`, path));
    step[named] = step[written];
    delete step[written];
  }
  if (step.inlinePlan !== undefined && step.inlinePlan !== null) {
    step.inlinePlan = planInput(step.inlinePlan, `${path}.${value.inlinePlan === undefined ? "plan" : "inlinePlan"}`, problems);
  }
  return step;
}

function reportUnknownFields(value: Fields, fields: readonly string[], path: string, problems: Problem[]): void {
  for (const name of Object.keys(value)) {
    if (fields.includes(name)) continue;
    const near = nearest(name, fields);
    const help = near ? `write \`${near}\`` : `the fields are ${fields.map((it) => `\`${it}\``).join(", ")}`;
    const at = /^\w+$/.test(name) ? `${path === "" ? "" : `${path}.`}${name}` : `${path}[${JSON.stringify(name)}]`;
    problems.push({ severity: "ERROR", code: "plan.unknown_field", path: at, message: `there is no field \`${name}\``, help });
  }
}

/** Returns the most similar name, if one is similar enough. */
function nearest(name: string, names: readonly string[]): string | undefined {
  const most = Math.max(1, Math.floor(name.length / 3));
  const found = names.map((it) => [distance(name.slice(0, 40).toLowerCase(), it.toLowerCase()), it] as const).sort(([a], [b]) => a - b);
  return found[0] && found[0][0] <= most ? found[0][1] : undefined;
}

/** Returns the edit distance of two texts. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}

function makeProblem(message: string, path: string): Problem {
  return { severity: "ERROR", code: "plan.invalid_json", path, message, help: null };
}

/** Returns the id of a step, or without an id the name of its tool or plan. */
export function idOf(step: Fields): string {
  const own = step.id ?? step.name ?? step.toolName ?? step.plan;
  return typeof own === "string" ? own : "";
}

/** Returns the ids of steps. A step without an id has the name of its tool, and a number if the name is taken. */
export function idsOf(steps: readonly Fields[]): string[] {
  const taken = new Set(steps.flatMap((it) => (typeof it.id === "string" ? [it.id] : [])));
  return steps.map((it) => {
    if (typeof it.id === "string") return it.id;
    const name = idOf(it);
    let id = name;
    for (let n = 2; taken.has(id); n += 1) id = `${name}_${n}`;
    taken.add(id);
    return id;
  });
}

/** Start and end of a value in a text. */
export type Place = [number, number];

/** Returns the place of the value at a path such as `tools[1].parameters.name`. */
export function find(text: string, path: string): Place | null {
  return findAll(text, [path])[0] ?? null;
}

interface Wanted {
  parts: (string | number)[];
  best: Place | null;
  depth: number;
}

/**
 * Returns the places of the values at these paths. For a path without a value, returns the place of the closest
 * existing parent.
 */
export function findAll(text: string, paths: readonly string[]): (Place | null)[] {
  const wanted: Wanted[] = paths.map((path) => ({
    parts: [...path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map((it) => (it[2] === undefined ? (it[1] ?? it[3] ?? "") : Number(it[2]))),
    best: null,
    depth: 0,
  }));
  try {
    new Reader(text).walk(wanted);
  } catch {
    // The text is not JSON. The places found before the mistake are still useful.
  }
  return wanted.map((it) => it.best);
}

/** Reads JSON text and notes where each wanted value begins and ends. */
class Reader {
  #at = 0;
  constructor(readonly text: string) {}

  /** Finds the wanted values. If the text is a bare list, it is read as the value of `tools`. */
  walk(wanted: Wanted[]): void {
    this.#space();
    if (this.text[this.#at] !== "[") return this.#value(wanted, 0);
    const inner = wanted.filter((it) => it.parts[0] === "tools").map((it) => ({ parts: it.parts.slice(1), best: null, depth: 0, of: it }));
    try {
      this.#value(inner, 0);
    } finally {
      for (const it of inner) it.of.best = it.best;
    }
  }

  #value(wanted: Wanted[], depth: number): void {
    this.#space();
    const begin = this.#at;
    const first = this.text[begin];
    if (first === "{" || first === "[") this.#group(wanted, depth, first === "{");
    else if (first === '"') this.#string();
    else while (this.#at < this.text.length && !/[,\]}\s]/.test(this.text[this.#at]!)) this.#at += 1;
    if (depth === 0) return;
    for (const it of wanted) {
      if (it.depth > depth || (it.depth === depth && it.best !== null)) continue;
      it.best = [begin, this.#at];
      it.depth = depth;
    }
  }

  #group(wanted: Wanted[], depth: number, isObject: boolean): void {
    this.#at += 1;
    for (let n = 0; ; n += 1) {
      this.#space();
      const next = this.text[this.#at];
      if (next === undefined) throw new Error("it ends too early");
      if (next === "}" || next === "]") break;
      if (next === ",") {
        this.#at += 1;
        this.#space();
      }
      let key: string | number = n;
      if (isObject) {
        key = this.#string();
        this.#space();
        this.#at += 1;
      }
      this.#value(
        wanted.length === 0 ? wanted : wanted.filter((it) => it.parts[depth] === key),
        depth + 1,
      );
    }
    this.#at += 1;
  }

  #string(): string {
    const begin = this.#at;
    if (this.text[begin] !== '"') throw new Error("a name is missing");
    for (let end = begin; ; ) {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) throw new Error("a text does not end");
      let slashes = 0;
      while (this.text[end - 1 - slashes] === "\\") slashes += 1;
      if (slashes % 2 === 1) continue;
      this.#at = end + 1;
      return JSON.parse(this.text.slice(begin, end + 1)) as string;
    }
  }

  #space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.#at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      this.#at += 1;
    }
  }
}
