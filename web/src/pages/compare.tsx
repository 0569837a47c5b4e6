/** Two executions side by side: states, durations, inputs and outputs of their steps. */

import { useMemo, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { CompareExecutions, RunsOfPlan, type Compared, type Json } from "../api/generated";
import { isFields, print } from "../api/json";
import { setParams, useParam } from "../router";
import { Refused } from "../ui/fault";
import { LineDifference } from "../ui/line-difference";
import { Empty, Loading, useTitle } from "../ui/page";
import { Plain } from "../ui/plain";
import { Dot, Pill, WORD } from "../ui/state";
import { elapsedText, formatAge, formatDateTime, formatDuration, spentText, useNow } from "../ui/time";
import { countText, placeOf } from "../ui/words";

export function ComparePage() {
  useTitle("Compare");
  const [a] = useParam("a");
  const [b] = useParam("b");
  const asked = useAsk(CompareExecutions, a === "" || b === "" ? null : { a, b });
  const found = asked.isCurrent ? asked.data : null;
  return (
    <div class="page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Compare executions</h1>
          <button type="button" onClick={() => setParams({ a: b, b: a })}>
            Swap
          </button>
        </div>
        <div class="compare-choice">
          <IdField name="a" label="First execution" value={a} />
          <IdField name="b" label="Second execution" value={b} />
        </div>
      </header>
      <div class="scroll">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {(a === "" || b === "") && <Others id={a || b} missing={a === "" ? "a" : "b"} />}
        {a !== "" && b !== "" && !found && !asked.error && <Loading />}
        {found && (!found.a || !found.b) && <Empty title="There is no such execution">Nothing is known by the id {found.a ? b : a}.</Empty>}
        {found?.a && found.b && <Comparison a={found.a} b={found.b} />}
      </div>
    </div>
  );
}

function IdField({ name, label, value }: { name: "a" | "b"; label: string; value: string }) {
  const read = (text: string) => {
    const id = text.trim();
    if (id === "" || placeOf(id)?.startsWith("/executions/")) setParams({ [name]: id });
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input key={value} type="text" class="mono" placeholder="exec_…" defaultValue={value} onInput={(event) => read(event.currentTarget.value)} />
    </label>
  );
}

/** Offers the other executions of the same plan. */
function Others({ id, missing }: { id: string; missing: "a" | "b" }) {
  const known = useAsk(CompareExecutions, id === "" ? null : { a: id, b: id });
  const planId = known.data?.a?.planId;
  const runs = useAsk(RunsOfPlan, planId === undefined ? null : { planId });
  const now = useNow(10_000);
  if (id === "") return <Empty title="Choose two executions">Paste their ids, or choose two rows in the list of executions.</Empty>;
  const others = (runs.data?.executions.nodes ?? []).filter((run) => run.executionId !== id);
  return (
    <section class="overview-part" aria-label="Other executions">
      <h2>Compare with another execution of the plan</h2>
      {!runs.data && !runs.error && <Loading />}
      {runs.data && others.length === 0 && <p class="faint">The plan has no other execution. Paste an id above.</p>}
      <ul class="cards compare-cards">
        {others.map((run) => (
          <li key={run.executionId}>
            <button type="button" class="card" onClick={() => setParams({ [missing]: run.executionId })}>
              <Pill state={run.state} />
              <span class="mono">{run.executionId}</span>
              <span class="faint">{formatAge(run.createdAt, now)}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

type Step = Compared["steps"][number];

function Comparison({ a, b }: { a: Compared; b: Compared }) {
  const [onlyDifferent, setOnlyDifferent] = useState(false);
  const rows = useMemo(() => rowsOf(a, b), [a, b]);
  const different = rows.filter((row) => row.isDifferent);
  const shown = onlyDifferent ? different : rows;
  return (
    <>
      <div class="compare-heads">
        <Head run={a} />
        <Head run={b} />
      </div>
      {print(a.input) !== print(b.input) && (
        <section class="overview-part" aria-label="Input">
          <h2>Input</h2>
          <LineDifference before={a.input} after={b.input} />
        </section>
      )}
      <section class="overview-part" aria-label="Steps">
        <div class="overview-head">
          <h2>Steps</h2>
          <span class="faint" role="status">
            {different.length === 0 ? "All have the same states and outputs." : `${different.length} of ${countText(rows.length, "step")} ${different.length === 1 ? "differs" : "differ"}.`}
          </span>
          <label class="check">
            <input type="checkbox" checked={onlyDifferent} onChange={(event) => setOnlyDifferent(event.currentTarget.checked)} />
            Differences only
          </label>
        </div>
        <div class="table-frame">
          <table class="plain wide">
            <thead>
              <tr>
                <th scope="col">Step</th>
                <th scope="col">First</th>
                <th scope="col">Second</th>
                <th scope="col" class="right">
                  Time
                </th>
                <th scope="col">Output</th>
              </tr>
            </thead>
            <tbody>
              {shown.slice(0, MAX_ROWS).map((row) => (
                <StepRow key={row.id} row={row} />
              ))}
            </tbody>
          </table>
        </div>
        {shown.length > MAX_ROWS && <p class="faint">and {shown.length - MAX_ROWS} more</p>}
      </section>
    </>
  );
}

const MAX_ROWS = 500;

function Head({ run }: { run: Compared }) {
  const now = useNow(1_000, run.finishedAt === null);
  return (
    <div class="compare-head">
      <p class="facts">
        <Pill state={run.state} />
        <span>{elapsedText(run.startedAt, run.finishedAt, now)}</span>
        <span>version {run.plan.version}</span>
        <span>{formatDateTime(run.createdAt)}</span>
      </p>
      <a class="cut" href={`/executions/${run.executionId}`}>
        <Plain text={run.request?.query ?? run.executionId} />
      </a>
    </div>
  );
}

interface Row {
  id: string;
  a: Step | null;
  b: Step | null;
  before: Json | undefined;
  after: Json | undefined;
  hasOtherOutput: boolean;
  isDifferent: boolean;
}

function rowsOf(a: Compared, b: Compared): Row[] {
  const [left, right] = [new Map(a.steps.map((step) => [step.stepId, step])), new Map(b.steps.map((step) => [step.stepId, step]))];
  return [...new Set([...left.keys(), ...right.keys()])].map((id) => {
    const [before, after] = [outputOf(a, id), outputOf(b, id)];
    const hasOtherOutput = print(before) !== print(after);
    const isDifferent = hasOtherOutput || left.get(id)?.state !== right.get(id)?.state || left.get(id)?.error?.message !== right.get(id)?.error?.message;
    return { id, a: left.get(id) ?? null, b: right.get(id) ?? null, before, after, hasOtherOutput, isDifferent };
  });
}

function outputOf({ outputs }: Compared, id: string): Json | undefined {
  return isFields(outputs) ? outputs[id] : undefined;
}

function StepRow({ row }: { row: Row }) {
  const [isOpen, setOpen] = useState(false);
  const hasOtherError = row.a?.error?.message !== row.b?.error?.message;
  return (
    <>
      <tr class={row.isDifferent ? "is-different" : ""}>
        <td class="mono">{row.id}</td>
        <td>{row.a ? <State step={row.a} /> : <span class="faint">missing</span>}</td>
        <td>{row.b ? <State step={row.b} /> : <span class="faint">missing</span>}</td>
        <td class="right faint">{row.a?.workMs != null && row.b?.workMs != null ? changeText(row.a.workMs, row.b.workMs) : ""}</td>
        <td>
          {row.hasOtherOutput || hasOtherError ? (
            <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              {row.hasOtherOutput ? "differs" : "other error"}
            </button>
          ) : (
            <span class="faint">{row.before === undefined ? "none" : "same"}</span>
          )}
        </td>
      </tr>
      {isOpen && (
        <tr>
          <td colSpan={5}>
            {hasOtherError && <LineDifference before={row.a?.error?.message ?? null} after={row.b?.error?.message ?? null} />}
            {row.hasOtherOutput && <LineDifference before={row.before ?? null} after={row.after ?? null} />}
          </td>
        </tr>
      )}
    </>
  );
}

function State({ step }: { step: Step }) {
  const spent = step.workMs === null ? "" : spentText({ worked: step.workMs, waited: step.waitedMs ?? 0 });
  return (
    <span class="compare-state">
      <Dot state={step.state} size={14} />
      <span>{WORD[step.state]}</span>
      <span class="faint">{spent}</span>
      {step.error && <code class="text-bad">{step.error.code}</code>}
    </span>
  );
}

/** Formats the change of a duration, such as `+1.20 s`. */
function changeText(before: number, after: number): string {
  const change = after - before;
  if (Math.abs(change) < 1) return "";
  return `${change > 0 ? "+" : "−"}${formatDuration(Math.abs(change))}`;
}
