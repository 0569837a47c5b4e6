/** Plans as people write them: what the server computed is left out. */

import type { Json, PlanDrawn, PlanInput, Problem } from "../api/generated";

type Step = PlanDrawn["tools"][number];
type Fields = Record<string, Json>;

const TIMEOUT = 300_000;

/** A step with the fields only that say something. What its templates name anyway need not be in `dependsOn`. */
function stepDraft(step: Step, toolOf: ReadonlyMap<string, string>): Fields {
  const named = JSON.stringify(step.parameters) + (step.forEach ?? "");
  const isNamed = (it: string) => new RegExp(`\\{\\{\\s*${escaped(it)}\\s*[.\\[}]`).test(named);
  const after = step.dependsOn.filter((it) => {
    // A template may name a step by its tool, with its set or without.
    const tool = toolOf.get(it) ?? it;
    return ![it, tool, tool.slice(tool.indexOf(".") + 1)].some(isNamed);
  });
  const retry = step.retry as Fields | null;
  const fields: Record<string, Json | false | undefined> = {
    id: step.stepId,
    name: step.plan ? false : step.toolName,
    plan: step.plan ?? false,
    parameters: step.parameters,
    dependsOn: after.length > 0 && after,
    when: step.when ?? false,
    forEach: step.forEach ?? false,
    maxParallel: (step.forEach && step.maxParallel) || false,
    retry: retry && Number(retry.maxAttempts) > 1 && retry,
    timeoutMs: step.timeoutMs !== null && step.timeoutMs !== TIMEOUT && step.timeoutMs,
    idleTimeoutMs: step.idleTimeoutMs ?? false,
    cacheTtlMs: step.cacheTtlMs ?? false,
    onError: step.onError !== "fail" && step.onError,
    requiresApproval: step.requiresApproval,
    compensate: compensation(step.compensate),
    outputMapping: step.outputMapping ?? false,
  };
  return Object.fromEntries(Object.entries(fields).filter(([, it]) => it !== false && it !== undefined)) as Fields;
}

function compensation(it: Json): Json | false {
  if (it === null || typeof it !== "object" || Array.isArray(it)) return false;
  return { toolName: it.toolName ?? null, parameters: it.parameters ?? {} };
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** The steps of a plan as people write them. */
export function stepDrafts(plan: PlanDrawn): Fields[] {
  const toolOf = new Map(plan.tools.map((it) => [it.stepId, it.toolName]));
  return plan.tools.map((it) => stepDraft(it, toolOf));
}

/** A whole plan as text. */
export function draftText(plan: PlanDrawn): string {
  return JSON.stringify({ query: plan.query, tools: stepDrafts(plan) }, null, 2);
}

/** Reads what somebody wrote; what is no draft at all is a problem like any other. */
export function readDraft(text: string): { input: PlanInput } | { problem: Problem } {
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch (error) {
    return wrong((error as Error).message, "");
  }
  if (Array.isArray(value)) value = { tools: value };
  if (value === null || typeof value !== "object") return wrong("a plan is an object with `tools`", "");
  if (!Array.isArray(value.tools)) return wrong("`tools` is missing: the list of steps", "");
  return { input: value as unknown as PlanInput };
}

function wrong(message: string, path: string): { problem: Problem } {
  return { problem: { severity: "ERROR", code: "plan.invalid_json", path, message, help: null } };
}

/** Returns where in a JSON text the value at a path such as `tools[1].parameters.name` stands. */
export function find(text: string, path: string): [number, number] | null {
  const wanted = [...path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map((it) => (it[2] === undefined ? (it[1] ?? it[3] ?? "") : Number(it[2])));
  const reader = new Reader(text);
  let best: [number, number] | null = null;
  let depth = 0;
  try {
    reader.value([], (at, begin, end) => {
      const isPrefix = at.length <= wanted.length && at.every((it, n) => it === wanted[n]);
      if (isPrefix && at.length > 0 && (best === null || at.length >= depth)) {
        best = [begin, end];
        depth = at.length;
      }
    });
  } catch {
    // What was found until the mistake is better than nothing.
  }
  return best;
}

/** Walks through JSON and tells where each value begins and ends. */
class Reader {
  #at = 0;
  constructor(readonly text: string) {}

  value(path: (string | number)[], tell: (path: (string | number)[], begin: number, end: number) => void): void {
    this.#space();
    const begin = this.#at;
    const first = this.text[this.#at];
    if (first === "{" || first === "[") this.#group(path, tell, first === "{");
    else if (first === '"') this.#string();
    else while (this.#at < this.text.length && !/[,\]}\s]/.test(this.text[this.#at]!)) this.#at += 1;
    tell(path, begin, this.#at);
  }

  #group(path: (string | number)[], tell: (path: (string | number)[], begin: number, end: number) => void, isObject: boolean): void {
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
      this.value([...path, key], tell);
    }
    this.#at += 1;
  }

  #string(): string {
    const begin = this.#at;
    this.#at += 1;
    while (this.text[this.#at] !== '"') {
      if (this.#at >= this.text.length) throw new Error("a text does not end");
      this.#at += this.text[this.#at] === "\\" ? 2 : 1;
    }
    this.#at += 1;
    return JSON.parse(this.text.slice(begin, this.#at)) as string;
  }

  #space(): void {
    while (/\s/.test(this.text[this.#at] ?? "")) this.#at += 1;
  }
}
