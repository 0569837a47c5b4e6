/**
 * Makes a draft for a request whose planning failed. The draft has steps for each part of the query. If the planner
 * chose tools for the part, the steps call them with default values only. Otherwise a placeholder stands for the tool.
 * So the draft is invalid until a person completes it.
 */

import type { Json, RequestPageResult, ToolNamesResult } from "../api/generated";
import { isFields, print, type Fields } from "../api/json";
import { emptyStep, requiredOf, toolOf } from "./step-form";

type Asked = NonNullable<RequestPageResult["request"]>;
type ToolName = ToolNamesResult["tools"][number];

export interface Proposal {
  text: string;
  /** The parts of the query without a tool. */
  uncovered: string[];
}

/** A part of the query, and the tools that the planner chose for it. */
interface Part {
  clause: string;
  tools: string[];
}

export function proposal(request: Asked, tools: readonly ToolName[]): Proposal {
  const steps: Fields[] = [];
  const uncovered: string[] = [];
  const taken = new Set<string>();
  let isComplete = true;
  const add = (step: Fields) => {
    taken.add(String(step.id));
    steps.push(step);
  };
  const leave = (text: string) => {
    uncovered.push(text);
    add(placeholderStep(text, uncovered.length));
  };
  for (const { clause, tools: chosen } of partsOf(request)) {
    const found = chosen.map((name) => toolOf(name, tools)).filter((tool) => tool !== undefined);
    if (found.length === 0) leave(clause);
    for (const tool of found) {
      const step = emptyStep(tool, taken);
      isComplete &&= requiredOf(tool).every((name) => name in (step.parameters as Fields));
      add(step);
    }
  }
  // The planner did not confirm that these steps are enough. With the placeholder, the plan is invalid until a person changes it.
  if (isComplete && uncovered.length === 0) leave(request.query);
  return { text: print({ requestId: request.requestId, query: request.query, tools: steps }, 2), uncovered };
}

/** Returns a step with a placeholder for the tool. */
function placeholderStep(text: string, number: number): Fields {
  return { id: `todo_${number}`, name: placeholderName(text), parameters: {} };
}

/** Returns the placeholder for the tool of a part of the query. */
export function placeholderName(text: string): string {
  return `TODO: ${text}`;
}

/** Returns the parts of the query that the transcript has, or the whole query if it has none. */
function partsOf({ query, transcript }: Asked): Part[] {
  const noted = transcript.findLast((entry) => entry.kind === "candidates")?.content;
  const parts = (Array.isArray(noted) ? noted : []).filter(isFields).map((part) => ({ clause: String(part.clause ?? query), tools: chosenTools(part) }));
  return parts.length > 0 ? parts : [{ clause: query, tools: [] }];
}

/** Returns the tools of the steps that the planner made for a part. Other candidates are left out. */
function chosenTools({ tools, steps }: Fields): string[] {
  const names = listIn(tools).map((candidate) => String(candidate.tool));
  return listIn(steps).flatMap((step) => {
    const id = String(step.step);
    // If two steps have the same tool, the id of the second step has a number at the end.
    const chosen = names.find((name) => idOf(name) === id) ?? names.find((name) => id.startsWith(`${idOf(name)}_`));
    return chosen === undefined ? [] : [chosen];
  });
}

function idOf(name: string): string {
  return name.replace(/[^\w.-]/g, "_");
}

function listIn(value: Json | undefined): Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}
