/** A draft for a request of which no plan came: its query, and a step for each tool that fits best. */

import type { Json, RequestPageResult, ToolNamesResult } from "../api/generated";
import { isFields, print } from "../api/json";
import { emptyStep, toolOf } from "./step-form";

type Asked = NonNullable<RequestPageResult["request"]>;
type ToolName = ToolNamesResult["tools"][number];

/** The most tools that are proposed where the query was not read clause by clause. */
const TOOLS = 3;

/** Returns the draft as text. */
export function proposal(request: Asked, tools: readonly ToolName[]): string {
  const steps = [];
  const taken = new Set<string>();
  for (const name of candidates(request.transcript)) {
    const tool = toolOf(name, tools);
    if (!tool) continue;
    const step = emptyStep(tool, taken);
    taken.add(String(step.id));
    steps.push(step);
  }
  return print({ requestId: request.requestId, query: request.query, tools: steps }, 2);
}

/** The best tool of each clause; where there are no clauses, the best tools that the planner was offered. */
function candidates(transcript: Asked["transcript"]): string[] {
  const of = (kind: string) => transcript.findLast((entry) => entry.kind === kind)?.content;
  const clauses = of("candidates");
  if (Array.isArray(clauses)) {
    const best = clauses.flatMap((clause) => (isFields(clause) ? namesIn(clause.tools).slice(0, 1) : []));
    if (best.length > 0) return best;
  }
  const selection = of("selection");
  return isFields(selection) ? namesIn(selection.candidates).slice(0, TOOLS) : [];
}

/** The tools of a list of candidates that were not left out, the best first. */
function namesIn(list: Json | undefined): string[] {
  const kept = (Array.isArray(list) ? list : []).filter(isFields).filter((candidate) => candidate.kept !== false && typeof candidate.tool === "string");
  return kept.sort((a, b) => Number(b.score ?? 0) - Number(a.score ?? 0)).map((candidate) => String(candidate.tool));
}
