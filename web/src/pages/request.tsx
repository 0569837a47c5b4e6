/** The page of a request: its query, how it was planned, the versions of its plan, and its executions. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ask, follow, useAsk } from "../api/client";
import {
  PlanExported,
  RequestHappening,
  RequestPage as RequestQuery,
  RequestRuns,
  type ExecutionFilter,
  type Json,
  type RequestPageResult,
  type RequestRunsResult,
} from "../api/generated";
import { isFields } from "../api/json";
import { RemedyCommands } from "../execution/remedies";
import { difference } from "../plan/difference";
import { StartDraft } from "../plan/start-draft";
import { useOneOf, useParam } from "../router";
import { Fault, Problems, Refused, RefusedPage, type Problem } from "../ui/fault";
import { Icon } from "../ui/icons";
import { JsonView } from "../ui/json";
import { Choice, Crumbs, Empty, Loading, Tabs, useTitle } from "../ui/page";
import { Plain, plain } from "../ui/plain";
import { Score } from "../ui/score";
import { formatAge, formatClockTime, formatDateTime, serverNow, formatDuration, useNow } from "../ui/time";
import { countText, plannerText } from "../ui/words";
import { useListing } from "./listing";
import { rowOf, Rows, stepOf } from "./rows";

type Asked = NonNullable<RequestPageResult["request"]>;
type RequestRun = RequestRunsResult["executions"]["edges"][number]["node"];

const TABS = ["executions", "planning", "versions"] as const;

export function RequestPage({ id }: { id: string }) {
  const asked = useAsk(RequestQuery, { id });
  const request = asked.data?.request;
  useTitle(plain(request?.query ?? "Request"));
  if (asked.error && asked.error.code !== "UNREACHABLE") return <RefusedPage title="Request" error={asked.error} />;
  if (request === null) return <Empty isPage title="There is no such request"><p>Nothing is known by the id {id}.</p><a href="/requests">To the requests</a></Empty>;
  if (!request || request.requestId !== id) return <Loading isPage />;
  return <Known key={id} request={request} onNews={asked.refresh} />;
}

function Known({ request, onNews }: { request: Asked; onNews: () => void }) {
  const id = request.requestId;
  const [tab, setTab] = useOneOf("view", TABS);
  const [shownParts, showParts] = useParam("parts");
  const hasParts = shownParts !== "";
  const roots = useRuns(request, false, true);
  const all = useRuns(request, true, hasParts);
  // An event causes the query to run again. Many events in a short time cause one query.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = follow(RequestHappening, () => ({ id }), {
      next: () => {
        timer ??= setTimeout(() => {
          timer = undefined;
          for (const it of [onNews, roots.refresh, all.refresh]) it();
        }, 300);
      },
      isDone: () => false,
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [id, onNews, roots.refresh, all.refresh]);
  const newest = request.plans.at(-1);
  const executions = count(roots);
  const failure = request.findings.find((finding) => finding.kind === "FAILURE");
  return (
    <div class="page">
      <header class="head">
        <Crumbs trail={[["Requests", "/requests"]]} here={id} />
        <div class="head-line">
          <h1 class="whole" tabIndex={-1}>
            <Plain text={request.query} />
          </h1>
          {newest && (
            <a class="button" href={`/plans/${newest.planId}`}>
              <Icon name="fork" />
              Open the plan
            </a>
          )}
        </div>
        <p class="facts">
          {request.planningError && <span class="tag tone-bad">Planning failed</span>}
          <span title={formatDateTime(request.createdAt)}>created {formatAge(request.createdAt, serverNow())}</span>
          <span>
            {request.plans.length} {request.plans.length === 1 ? "version" : "versions"} of the plan
          </span>
          <span>
            {executions} {executions === "1" ? "execution" : "executions"}
          </span>
        </p>
      </header>
      {request.planningError && (
        <div class="failures">
          <Fault
            code={request.planningError.code}
            message={request.planningError.message}
            {...(failure ? { cause: failure.message } : {})}
            actions={<StartDraft id={id} />}
          >
            {failure && <RemedyCommands finding={failure} executionId="" />}
          </Fault>
        </div>
      )}
      <Tabs
        label="About the request"
        tabs={TABS}
        shown={tab}
        onShow={setTab}
        names={{ planning: "How the plan was made", versions: `Versions (${request.plans.length})`, executions: `Executions (${executions})` }}
      />
      <div role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`} class={tab === "executions" ? "list" : "scroll"}>
        {tab === "executions" && <RunList request={request} runs={hasParts ? all : roots} hasParts={hasParts} onParts={(it) => showParts(it ? "all" : "")} />}
        {tab === "planning" && <Transcript request={request} />}
        {tab === "versions" && <Versions request={request} />}
      </div>
    </div>
  );
}

/** Number of executions in one query. */
const QUERY_ROWS = 50;

/** Returns the name of an execution within its request. */
function nameOf(run: RequestRun, versions: ReadonlyMap<string, number>): string {
  if (run.parentStepId !== null) return `${stepOf(run)}, a sub-execution`;
  const words = [`Version ${versions.get(run.planId) ?? "?"}`, run.mode.toLowerCase()];
  if (run.dryRun) words.push("dry run");
  if (run.retryOf) words.push("a retry");
  return words.join(", ");
}

/** Returns the executions of a request, newest first. With `hasParts`, the executions of sub-plans are included. */
function useRuns(request: Asked, hasParts: boolean, isWanted: boolean) {
  const filter: ExecutionFilter = { requestId: request.requestId, parts: hasParts };
  const asked = useAsk(RequestRuns, isWanted ? { filter, first: QUERY_ROWS } : null);
  const versions = useMemo(() => new Map(request.plans.map((it) => [it.planId, it.version])), [request]);
  const read = ({ executions }: RequestRunsResult) => ({
    rows: executions.edges.map(({ cursor, node }) => rowOf(cursor, node, nameOf(node, versions), "")),
    hasMore: executions.pageInfo.hasNextPage,
  });
  const first = useMemo(() => asked.data && read(asked.data), [asked.data, versions]);
  const list = useListing(`${request.requestId} ${hasParts}`, asked.isCurrent ? first : null, async (after, count) => read(await ask(RequestRuns, { filter, first: count, after })));
  return { list: asked.isCurrent ? list : null, error: asked.error, refresh: asked.refresh };
}

type Runs = ReturnType<typeof useRuns>;

/** Returns the number of loaded executions, with a `+` if there are more. */
function count({ list }: Runs): string {
  return list ? `${list.rows.length.toLocaleString("en")}${list.hasMore ? "+" : ""}` : "…";
}

interface RunListProps {
  request: Asked;
  runs: Runs;
  hasParts: boolean;
  onParts: (hasParts: boolean) => void;
}

function RunList({ request, runs, hasParts, onParts }: RunListProps) {
  const { list, error } = runs;
  if (error && error.code !== "UNREACHABLE") return <Refused error={error} />;
  if (!list) return <Loading />;
  const empty = <Empty title="It has not been executed">{request.plans.length > 0 ? "Open the plan to run it." : request.planningError ? "The planner made no plan. Start a draft of your own, or see how the plan was made." : "There is no plan yet."}</Empty>;
  return (
    <>
      {list.rows.length > 0 && (
        <div class="pane-bar">
          <div class="switch" role="group" aria-label="Which executions">
            <button type="button" aria-pressed={!hasParts} onClick={() => onParts(false)}>
              Top level only
            </button>
            <button type="button" aria-pressed={hasParts} onClick={() => onParts(true)}>
              Include sub-executions
            </button>
          </div>
          <span class="faint">{hasParts ? "A sub-execution is begun by a step that executes a plan." : "Executions that steps began are left out."}</span>
        </div>
      )}
      <Rows label="Executions" {...list} empty={empty} />
    </>
  );
}

const KINDS: Record<string, string> = {
  selection: "Tools that were considered",
  clauses: "What the query says",
  candidates: "Candidates",
  assumptions: "Assumptions",
  draft: "Draft",
  prompt: "What the model was told",
  reply: "What the model answered",
  diagnostics: "Diagnostics",
  repair: "Repair",
  plan: "Plan",
  error: "Error",
};

function Transcript({ request }: { request: Asked }) {
  if (request.transcript.length === 0) return <Empty title="Written by hand">This plan was not made by a planner.</Empty>;
  const begin = Date.parse(request.transcript[0]!.at);
  return (
    <ol class="transcript">
      {request.transcript.map((it, at) => (
        <li key={at} class={`entry entry-${it.kind}`}>
          <h2>
            {KINDS[it.kind] ?? it.kind.replaceAll("_", " ")}
            <span class="faint" title={formatClockTime(it.at)}>
              +{formatDuration(Date.parse(it.at) - begin)}
            </span>
          </h2>
          <Entry kind={it.kind} content={it.content} />
        </li>
      ))}
    </ol>
  );
}

interface Candidate {
  tool: string;
  /** A `Num` if JavaScript would write the number in another way, such as `1.0`. */
  score: Json;
  kept?: boolean;
  why?: string;
}

function Entry({ kind, content }: { kind: string; content: Json }) {
  if (kind === "selection" && isFields(content) && Array.isArray(content.candidates)) {
    return (
      <>
        <p class="faint">
          By {String(content.by).toLowerCase()}, at most {String(content.maxTools)}.
        </p>
        <Candidates candidates={content.candidates as unknown as Candidate[]} />
      </>
    );
  }
  if (kind === "clauses" && Array.isArray(content)) {
    return (
      <ol class="clauses">
        {content.map((it, at) => (
          <li key={at}>
              <Plain text={String(it)} />
            </li>
        ))}
      </ol>
    );
  }
  if (kind === "candidates" && Array.isArray(content)) {
    return (
      <>
        {content.filter(isFields).map((it, at) => (
          <div key={at}>
            <p>
              “<Plain text={String(it.clause)} />”
            </p>
            <Candidates candidates={(it.tools ?? []) as unknown as Candidate[]} />
          </div>
        ))}
      </>
    );
  }
  if (kind === "diagnostics" && Array.isArray(content)) return <Problems problems={content as unknown as Problem[]} />;
  if (kind === "plan" && isFields(content) && typeof content.planId === "string") {
    return (
      <p>
        <a class="mono" href={`/plans/${content.planId}`}>
          {content.planId}
        </a>{" "}
        <span class="faint">version {String(content.version ?? "")}</span>
      </p>
    );
  }
  if (typeof content === "string") return <pre class="code">
        <Plain text={content} />
      </pre>;
  return <JsonView value={content} label={kind} open={kind === "draft" ? 3 : 1} />;
}

/** Number of candidates that are shown at first. */
const FIRST_CANDIDATES = 8;

function Candidates({ candidates }: { candidates: Candidate[] }) {
  const [isWhole, setWhole] = useState(false);
  const most = Math.max(...candidates.map((it) => Number(it.score ?? 0)), 0.000_1);
  return (
    <div class="candidates">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Tool</th>
            <th scope="col">Score</th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {candidates.slice(0, isWhole ? 1_000 : FIRST_CANDIDATES).map((it, at) => (
            <tr key={at} class={it.kept === false ? "faint" : ""}>
              <td class="mono">{it.tool}</td>
              <td>
                <Score value={it.score == null ? null : Number(it.score)} most={most} />
              </td>
              <td class="faint">{it.kept === false ? `left out: ${it.why ?? ""}` : (it.why ?? "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {candidates.length > FIRST_CANDIDATES && (
        <button type="button" class="link" onClick={() => setWhole(!isWhole)}>
          {isWhole ? "Fewer" : `All ${candidates.length}`}
        </button>
      )}
    </div>
  );
}

function Versions({ request }: { request: Asked }) {
  const plans = request.plans;
  const [a, setA] = useParam("from", plans.at(-2)?.planId ?? "");
  const [b, setB] = useParam("to", plans.at(-1)?.planId ?? "");
  const now = useNow(30_000);
  const options = plans.map((it) => [it.planId, `Version ${it.version} (${it.planner})`] as const);
  return (
    <>
      <ul class="cards">
        {[...plans].reverse().map((it) => (
          <li key={it.planId}>
            <a class="card" href={`/plans/${it.planId}`}>
              <strong>Version {it.version}</strong>
              <span class="mono faint">{it.planId}</span>
              <span>{countText(it.executionOrder.length, "step")}</span>
              <span class="faint">{plannerText(it.planner)}</span>
              <span class="grow" />
              <span class="faint">{formatAge(it.createdAt, now)}</span>
            </a>
          </li>
        ))}
      </ul>
      {plans.length > 1 && (
        <section class="section">
          <h2>Difference</h2>
          <p class="filters">
            <Choice label="Earlier version" value={a} options={options} onChange={setA} />
            <span class="faint">to</span>
            <Choice label="Later version" value={b} options={options} onChange={setB} />
          </p>
          <Difference from={a} to={b} />
        </section>
      )}
    </>
  );
}

function Difference({ from, to }: { from: string; to: string }) {
  const before = useAsk(PlanExported, { id: from });
  const after = useAsk(PlanExported, { id: to });
  const refusal = before.error ?? after.error;
  const [a, b] = [before.data?.exportPlan, after.data?.exportPlan];
  if (refusal && (!a || !b)) return <Refused error={refusal} />;
  if (!a || !b) return <Loading />;
  return <Compared before={a} after={b} />;
}

function Compared({ before, after }: { before: Json; after: Json }) {
  const steps = useMemo(() => difference(before, after), [before, after]);
  const changed = steps.filter((it) => it.kind !== "same");
  const words = { changed: "changed", gone: "removed", new: "added", same: "" };
  if (changed.length === 0) return <p class="faint">The steps are the same.</p>;
  return (
    <div class="difference">
      <p class="faint">
        {changed.length} of {steps.length} steps differ.
      </p>
      {changed.slice(0, 200).map((it) => (
        <section key={it.id} class={`difference-step is-${it.kind}`}>
          <h3>
            {it.id} <span class="tag">{words[it.kind]}</span>
          </h3>
          <div class="difference-sides">
            {it.kind !== "new" && <Side name="before" lines={it.lines.filter((line) => line.kind !== "new")} />}
            {it.kind !== "gone" && <Side name="after" lines={it.lines.filter((line) => line.kind !== "gone")} />}
          </div>
        </section>
      ))}
    </div>
  );
}

function Side({ name, lines }: { name: string; lines: readonly { kind: string; text: string }[] }) {
  return (
    <pre class="code" aria-label={name} tabIndex={0}>
      {lines.map((it, at) => (
        <span key={at} class={`line line-${it.kind}`}>
          {it.text}
        </span>
      ))}
    </pre>
  );
}
