/** Example operations for the first visit. The build checks them against the schema. */

import text from "./examples.graphql?raw";

const VARIABLES: Record<string, object> = {
  PlanAndExecute: { query: "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world" },
  WatchExecution: { executionId: "exec_…", afterSeq: 0 },
  DebugRequest: { requestId: "req_…" },
  SelectTools: { query: "write an article" },
};

/** One tab for each operation. */
export const EXAMPLES = text
  .split(/^(?=# )/m)
  .filter((it) => it.trim() !== "")
  .map((query) => {
    const name = /(?:query|mutation|subscription)\s+(\w+)/.exec(query)?.[1] ?? "";
    const variables = VARIABLES[name];
    return { query: query.trimEnd(), ...(variables ? { variables: JSON.stringify(variables, null, 2) } : {}) };
  });
