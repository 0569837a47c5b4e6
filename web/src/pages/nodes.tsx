/** The nodes: workers and their leases, what this server does, running calls, held calls, and errors of toolsets. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { useAsk } from "../api/client";
import { OpenRuns, SetStates, Workers, type OpenRunsResult } from "../api/generated";
import { sumOf, useMetrics, type Metrics } from "../api/metrics";
import { Refused } from "../ui/fault";
import { Loading, useTitle } from "../ui/page";
import { Plain } from "../ui/plain";
import { Dot, WORD } from "../ui/state";
import { elapsedText, formatDateTime, formatDuration, oneUnitSpan, useNow } from "../ui/time";
import { countText, Words } from "../ui/words";

const POLL_INTERVAL = 3_000;

export function NodesPage() {
  useTitle("Nodes");
  const { metrics, error } = useMetrics(POLL_INTERVAL);
  return (
    <div class="page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Nodes</h1>
        </div>
      </header>
      <div class="scroll">
        <Part title="This server" hint="The figures of the process that answers this page. Each node has its own.">
          {error && <p class="warning">{error}</p>}
          {!metrics && !error && <Loading />}
          {metrics && <ServerFacts metrics={metrics} />}
        </Part>
        <WorkerList />
        <Runs />
        <ToolSetStates />
      </div>
    </div>
  );
}

function Part({ title, hint, children }: { title: string; hint?: string; children: ComponentChildren }) {
  return (
    <section class="overview-part" aria-label={title}>
      <h2>{title}</h2>
      {hint !== undefined && <p class="faint">{hint}</p>}
      {children}
    </section>
  );
}

function ServerFacts({ metrics }: { metrics: Metrics }) {
  const version = metrics.get("faber_build_info")?.[0]?.labels.version ?? "";
  const startedAt = sumOf(metrics, "process_start_time_seconds") * 1_000;
  const now = useNow(5_000);
  const oldest = sumOf(metrics, "faber_executions_oldest_due_seconds");
  const facts: readonly (readonly [string, string, string])[] = [
    ["Executions that it drives", String(sumOf(metrics, "faber_executions_active")), "Waiting executions are released, so no node drives them."],
    ["Due, without a worker", String(sumOf(metrics, "faber_executions_due")), oldest > 0 ? `the first for ${formatDuration(oldest * 1_000)}` : ""],
    ["Calls held back by a limit", String(sumOf(metrics, "faber_calls_waiting")), "See limits.calls of the configuration."],
    ["Takeovers from lost workers", String(sumOf(metrics, "faber_takeovers_total")), "since the start"],
    ["Appends that the store did not confirm", String(sumOf(metrics, "faber_store_append_errors_total")), "since the start; they are repeated"],
    ["Size of the store", bytesText(sumOf(metrics, "faber_store_size_bytes")), ""],
    ["Memory", bytesText(sumOf(metrics, "process_resident_memory_bytes")), ""],
    ["Running since", startedAt > 0 ? formatDuration(now - startedAt) : "", version === "" ? "" : `version ${version}`],
  ];
  return (
    <dl class="figures">
      {facts.map(([name, value, note]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <strong>{value}</strong>
            {note !== "" && <span class="faint"> {note}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function bytesText(bytes: number): string {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.round(bytes / 1e3)} kB`;
}

/** The workers of all nodes. A lost worker stays in the list until its lease ends. */
function WorkerList() {
  const asked = useAsk(Workers, {}, POLL_INTERVAL);
  const now = useNow(1_000);
  const workers = [...(asked.data?.workers ?? [])].sort((a, b) => (a.node < b.node ? -1 : 1));
  return (
    <Part title="Workers" hint="A worker drives executions. If it does not renew its lease in time, other workers take over its executions.">
      {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
      {!asked.data && !asked.error && <Loading />}
      {asked.data && workers.length === 0 && <p class="faint">No worker has a lease, so no execution continues.</p>}
      {workers.length > 0 && (
        <div class="table-frame">
          <table class="plain wide">
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col">Worker</th>
                <th scope="col" class="right">
                  Executions
                </th>
                <th scope="col" class="right">
                  Lease ends
                </th>
              </tr>
            </thead>
            <tbody>
              {workers.map((worker) => (
                <tr key={worker.workerId} data-id={worker.workerId}>
                  <td>
                    <Plain text={worker.node} />
                  </td>
                  <td class="mono">{worker.workerId}</td>
                  <td class="right">{worker.executions.toLocaleString("en")}</td>
                  <td class="right" title={formatDateTime(worker.leaseUntil)}>
                    {Date.parse(worker.leaseUntil) > now ? `in ${oneUnitSpan(Date.parse(worker.leaseUntil) - now)}` : "has ended"}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Part>
  );
}

/** Maximum number of running calls of an execution that are listed. */
const MAX_CALLS = 5;

/** The calls of an execution that run now. */
function Calls({ run }: { run: Run }) {
  const calls = run.waitsFor.filter(({ kind }) => kind === "call");
  if (calls.length === 0) return null;
  return (
    <ul class="node-calls" aria-label="Running calls">
      {calls.slice(0, MAX_CALLS).map((call) => (
        <li key={call.message}>
          <Words text={call.message} />
        </li>
      ))}
      {calls.length > MAX_CALLS && <li>and {calls.length - MAX_CALLS} more</li>}
    </ul>
  );
}

type Run = OpenRunsResult["executions"]["nodes"][number];

/** The running executions by node, and the calls that limits hold back. */
function Runs() {
  const asked = useAsk(OpenRuns, {}, POLL_INTERVAL);
  const found = asked.data?.executions;
  const now = useNow(1_000);
  const nodes = useMemo(() => groupByNode(found?.nodes ?? []), [found]);
  const held = (found?.nodes ?? []).flatMap((run) => run.waitsFor.filter(({ kind }) => kind === "limit").map((wait) => ({ run, wait })));
  return (
    <>
      <Part title="Running executions by node" hint="Each execution with the calls that run now.">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {found && found.totalCount > found.nodes.length && <p class="faint">The newest {found.nodes.length} of {countText(found.totalCount, "execution")}.</p>}
        {found && nodes.length === 0 && <p class="faint">No execution runs now.</p>}
        {nodes.map(([node, runs]) => (
          <details key={node} class="node" open={runs.length <= 10}>
            <summary>
              <strong>
                <Plain text={node} />
              </strong>{" "}
              <span class="count">{runs.length}</span>
            </summary>
            <ul class="plain-list">
              {runs.map((run) => (
                <li key={run.executionId} class="node-run">
                  <Dot state={run.state} />
                  <span class="unseen">{WORD[run.state]}</span>
                  <a class="cut" href={`/executions/${run.executionId}`}>
                    <Plain text={run.request?.query ?? run.executionId} />
                  </a>
                  <span class="faint">{elapsedText(run.startedAt, null, now)}</span>
                  <Calls run={run} />
                </li>
              ))}
            </ul>
          </details>
        ))}
      </Part>
      {found && (
        <Part title="Calls that limits hold back">
          {held.length === 0 && <p class="faint">No limit holds back a call.</p>}
          <ul class="plain-list">
            {held.map(({ run, wait }) => (
              <li key={`${run.executionId} ${wait.stepId} ${wait.message}`}>
                <a href={`/executions/${run.executionId}`}>
                  <Plain text={run.request?.query ?? run.executionId} />
                </a>{" "}
                <Words text={wait.message} />
              </li>
            ))}
          </ul>
        </Part>
      )}
    </>
  );
}

function groupByNode(runs: readonly Run[]): [string, Run[]][] {
  const nodes = new Map<string, Run[]>();
  for (const run of runs) {
    if (run.state === "WAITING") continue;
    const node = run.node ?? "no node yet";
    nodes.set(node, [...(nodes.get(node) ?? []), run]);
  }
  return [...nodes].sort(([a], [b]) => (a < b ? -1 : 1));
}

function ToolSetStates() {
  const asked = useAsk(SetStates, {}, POLL_INTERVAL);
  const sets = [...(asked.data?.toolSets ?? [])].sort((a, b) => Number(b.error !== null) - Number(a.error !== null));
  return (
    <Part title="Toolsets">
      {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
      <ul class="plain-list" aria-label="States of the toolsets">
        {sets.map((set) => (
          <li key={set.name} class="node-run">
            <a href={`/tools?search=${encodeURIComponent(set.name)}`}>{set.name}</a>
            <span class="tag">{set.source}</span>
            <span class={`tag tone-${set.status === "failed" ? "bad" : set.status === "ready" ? "good" : "running"}`}>{set.active ? set.status : "off"}</span>
            {set.error !== null && (
              <span class="text-bad">
                <Words text={set.error} />
              </span>
            )}
          </li>
        ))}
      </ul>
    </Part>
  );
}
