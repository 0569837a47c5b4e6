/**
 * A draft for a request of which no plan came. It has a step for each part of the query that the planner found a tool
 * for, without values, and a step to be replaced for each other part: it is not valid until somebody has completed it.
 */

import type { Json, RequestPageResult, ToolNamesResult } from "../api/generated";
import { isFields, print, type Fields } from "../api/json";
import { emptyStep, requiredOf, toolOf } from "./step-form";

type Asked = NonNullable<RequestPageResult["request"]>;
type ToolName = ToolNamesResult["tools"][number];

export interface Proposal {
  text: string;
  /** The parts of the query that no step of the draft does. */
  uncovered: string[];
}

/** A part of the query, and the tools of the steps that the planner made for it. */
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
    add(openStep(text, uncovered.length));
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
  // The planner did not find that these steps are enough, so that they must not run as they are.
  if (isComplete && uncovered.length === 0) leave(request.query);
  return { text: print({ requestId: request.requestId, query: request.query, tools: steps }, 2), uncovered };
}

/** Stands for a part of the query until somebody writes a tool in its place. */
function openStep(text: string, number: number): Fields {
  return { id: `todo_${number}`, name: openName(text), parameters: {} };
}

/** Stands in place of the tool for a part of the query. */
export function openName(text: string): string {
  return `TODO: ${text}`;
}

/** The parts that the planner read; the whole query where it did not read it in parts. */
function partsOf({ query, transcript }: Asked): Part[] {
  const noted = transcript.findLast((entry) => entry.kind === "candidates")?.content;
  const parts = (Array.isArray(noted) ? noted : []).filter(isFields).map((part) => ({ clause: String(part.clause ?? query), tools: chosenIn(part) }));
  return parts.length > 0 ? parts : [{ clause: query, tools: [] }];
}

/** The tools of the steps that were made for a part. Tools that were only looked at do not fit. */
function chosenIn({ tools, steps }: Fields): string[] {
  const names = listIn(tools).map((candidate) => String(candidate.tool));
  return listIn(steps).flatMap((step) => {
    const id = String(step.step);
    // A second step of a tool has a number behind the name.
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
