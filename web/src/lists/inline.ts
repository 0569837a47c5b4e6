/** Tells requests of users from requests that belong to inline plans. */

import type { RequestRow } from "../api/generated";

/**
 * Returns whether a request was made for an inline plan of a step. The server stores such a request at the very moment
 * of its plan. Other requests are older than their first plan. An inline plan that was executed by itself is a row.
 */
export function isInlinePlan({ createdAt, plans, executions }: Pick<RequestRow, "createdAt" | "plans"> & { executions: readonly unknown[] }): boolean {
  return plans.length === 1 && plans[0]!.createdAt === createdAt && executions.length === 0;
}
