/** Finds the executions that a bulk retry should retry: those that nobody has retried yet. */

import { useEffect, useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { RunsToRetry, type ExecutionFilter, type Json, type RunsToRetryResult } from "../api/generated";
import { print } from "../api/json";
import { toApiError } from "../ui/fault";

type Run = RunsToRetryResult["executions"]["nodes"][number];

export interface Retriable {
  ids: string[];
  /** Number of executions that are left out, because they were retried or replanned before. */
  retried: number;
  /** True if the filter matches more executions than one action retries. */
  isCut: boolean;
}

/** Maximum number of executions that one action retries, and of later executions that are searched for retries. */
const MAX_RUNS = 10_000;
const MAX_SEARCHED = 50_000;
/** Up to this number of requests, only later executions of these requests are searched. */
const MAX_REQUESTS = 20;

/** Returns the executions of a filter without a retry. `Execution.retries` is not used, because it finds 1,000 at most. */
export async function findRetriable(filter: ExecutionFilter, signal?: AbortSignal): Promise<Retriable> {
  const { runs, isCut } = await readRuns({ ...filter, parts: false }, MAX_RUNS, signal);
  if (runs.length === 0) return { ids: [], retried: 0, isCut };
  const from = runs.reduce((oldest, run) => (run.createdAt < oldest ? run.createdAt : oldest), runs[0]!.createdAt);
  // A retry belongs to the request of the execution that it retries.
  const requests = [...new Set(runs.map((run) => run.requestId))];
  const searched: ExecutionFilter[] = requests.length > MAX_REQUESTS ? [{ from, parts: false }] : requests.map((requestId) => ({ requestId, from, parts: false }));
  const retried = new Set<string | null>();
  for (const later of searched) {
    const found = await readRuns(later, MAX_SEARCHED, signal);
    if (found.isCut) throw new Error("too many later executions to find out which of these were retried before: choose a shorter time");
    for (const run of found.runs) retried.add(run.retryOf);
  }
  const ids = runs.map((run) => run.executionId).filter((id) => !retried.has(id));
  return { ids, retried: runs.length - ids.length, isCut };
}

async function readRuns(filter: ExecutionFilter, max: number, signal?: AbortSignal): Promise<{ runs: Run[]; isCut: boolean }> {
  const runs: Run[] = [];
  let after: string | null = null;
  for (;;) {
    const { executions }: RunsToRetryResult = await ask(RunsToRetry, { filter, after }, signal);
    runs.push(...executions.nodes);
    after = executions.pageInfo.endCursor;
    if (!executions.pageInfo.hasNextPage) return { runs, isCut: false };
    if (runs.length >= max) return { runs, isCut: true };
  }
}

/** Finds the executions while a dialog is open. Null as filter asks for nothing. */
export function useRetriable(filter: ExecutionFilter | null): { found: Retriable | null; error: ApiError | null } {
  const [state, setState] = useState<{ found: Retriable | null; error: ApiError | null }>({ found: null, error: null });
  const key = filter === null ? "" : print(filter as unknown as Json);
  useEffect(() => {
    if (filter === null) return;
    const gone = new AbortController();
    setState({ found: null, error: null });
    findRetriable(filter, gone.signal).then(
      (found) => gone.signal.aborted || setState({ found, error: null }),
      (error: unknown) => gone.signal.aborted || setState({ found: null, error: toApiError(error) }),
    );
    return () => gone.abort();
  }, [key]);
  return state;
}
