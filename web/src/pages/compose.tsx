/** A plan that is made, looked at, changed and run. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, ask, useAsk } from "../api/client";
import {
  CreatePlan,
  ExecutePlan,
  PlanOne,
  PlanQuery,
  RevisePlan,
  ToolNames,
  ValidatePlan,
  type ExecutionMode,
  type Json,
  type PlanDrawn,
  type Problem,
} from "../api/generated";
import { Graph } from "../graph/graph";
import { looksOf } from "../execution/looks";
import { draftText, readDraft } from "../plan/draft";
import { Editor, type Goal } from "../plan/editor";
import { StepForm, emptyStep, type Draft } from "../plan/step-form";
import { go } from "../router";
import { Problems, Refused, RefusedPage } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Crumbs, Empty, Loading, useTitle } from "../ui/page";

const EXAMPLE = `{
  "query": "Say hello",
  "tools": [
    { "id": "hello", "name": "flow.echo", "parameters": { "text": "Hello" } },
    { "id": "again", "name": "flow.echo", "parameters": { "said": "{{hello.text}}" } }
  ]
}`;

export function ComposePage({ from }: { from: string | null }) {
  const asked = useAsk(PlanOne, from === null ? null : { id: from, direction: "DOWN" });
  if (from === null) return <Compose known={null} />;
  if (asked.error && !asked.data) return <RefusedPage title="Plan" error={asked.error} />;
  if (asked.data?.plan === null) return <Empty isPage title="There is no such plan">Nothing is known by the id {from}.</Empty>;
  if (!asked.data?.plan) return <Loading />;
  return <Compose known={asked.data.plan} />;
}

function Compose({ known }: { known: PlanDrawn | null }) {
  const [query, setQuery] = useState("");
  const [plan, setPlan] = useState<PlanDrawn | null>(known);
  /** The plan that is stored, as long as nothing was changed. */
  const [stored, setStored] = useState<PlanDrawn | null>(known);
  const [text, setText] = useState(() => (known ? draftText(known) : ""));
  const [written, setWritten] = useState(text);
  const [problems, setProblems] = useState<readonly Problem[]>(known?.diagnostics ?? []);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [selected, setSelected] = useState<string | null>(null);
  const [goal, setGoal] = useState<Goal | null>(null);
  const isChanged = text !== written;
  useTitle(known ? `Plan: ${known.query}` : "New plan");

  const asked = useAsk(ToolNames, {});
  const tools = asked.data?.tools ?? [];
  const steps = useMemo(() => stepsOf(text), [text]);
  const place = selected === null ? -1 : draftPlace(steps, selected);
  /** Writes the steps anew, and leaves the rest of the text as it is. */
  const write = (next: Draft[]) => {
    const draft = text.trim() === "" ? {} : (JSON.parse(text) as Json);
    const rest = draft !== null && typeof draft === "object" && !Array.isArray(draft) ? draft : {};
    setText(JSON.stringify({ ...rest, tools: next }, null, 2));
  };

  const check = useMemo(() => ({ text, isChanged }), [text, isChanged]);
  useEffect(() => {
    if (!check.isChanged || check.text.trim() === "") return;
    const read = readDraft(check.text);
    if ("problem" in read) {
      setProblems([read.problem]);
      return;
    }
    const gone = new AbortController();
    const timer = setTimeout(() => {
      ask(ValidatePlan, { input: read.input, direction: "DOWN" }, gone.signal).then(
        ({ validatePlan }) => {
          setProblems(validatePlan.diagnostics);
          if (validatePlan.plan) setPlan(validatePlan.plan);
          setError(null);
        },
        (error: ApiError) => gone.signal.aborted || setError(error),
      );
    }, 250);
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [check]);

  const doing = async (it: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await it();
    } catch (error) {
      setError(error instanceof ApiError ? error : new ApiError(String(error), "INTERNAL"));
    } finally {
      setBusy(false);
    }
  };
  const take = (made: PlanDrawn) => {
    const draft = draftText(made);
    setPlan(made);
    setStored(made);
    setText(draft);
    setWritten(draft);
    setProblems(made.diagnostics);
  };
  const planIt = () =>
    doing(async () => {
      const { createPlanWithRequestId } = await ask(PlanQuery, { query, direction: "DOWN" });
      take(createPlanWithRequestId);
      setSelected(null);
    });
  const begin = (example: string) => {
    setText(example);
    setWritten("");
    setStored(null);
  };
  /** Keeps what was written as a plan of its own or the next version, and gives its id. */
  const keep = async (): Promise<string> => {
    if (stored && !isChanged) return stored.planId;
    const read = readDraft(text);
    if ("problem" in read) throw new ApiError(read.problem.message, "INVALID_PLAN");
    const { input } = read;
    const base = stored ?? known;
    const kept = base ? (await ask(RevisePlan, { id: base.planId, input })).revisePlan : (await ask(CreatePlan, { input })).createPlan;
    setProblems(kept.diagnostics);
    if (!kept.plan) throw new ApiError("the plan has errors: see the diagnostics", "INVALID_PLAN");
    return kept.plan.planId;
  };
  const errors = problems.filter((it) => it.severity === "ERROR").length;
  const looks = useMemo(() => (plan ? looksOf(plan.tools, null, 0) : []), [plan]);
  const pick = (name: string | null) => {
    setSelected(name);
    const at = name === null ? -1 : draftPlace(steps, name);
    if (at >= 0) setGoal({ path: `tools[${at}]`, count: (goal?.count ?? 0) + 1, isWanted: false });
  };
  return (
    <div class="page compose">
      <header class="head">
        {known && <Crumbs trail={[["Requests", "/"], [known.requestId, `/requests/${known.requestId}`]]} here={known.planId} />}
        <div class="head-line">
          <h1 class="cut" tabIndex={-1}>
            {known ? known.query : "New plan"}
          </h1>
          {text !== "" && <RunBar isBusy={isBusy} hasErrors={errors > 0} onRun={(options) => doing(async () => {
            const id = await keep();
            const { executePlan } = await ask(ExecutePlan, { id, options });
            go(`/executions/${executePlan.executionId}`);
          })} onKeep={isChanged || !stored ? () => doing(async () => go(`/plans/${await keep()}`)) : null} />}
        </div>
        {known ? (
          <p class="facts">
            <span>version {known.version}</span>
            <span>{known.tools.length} steps</span>
            <span>by {known.planner}</span>
            {isChanged && <span class="tag">changed: it will be the next version</span>}
          </p>
        ) : (
          <form
            class="query-form"
            onSubmit={(event) => {
              event.preventDefault();
              void planIt();
            }}
          >
            <label class="unseen" for="query">
              What is to be done?
            </label>
            <textarea
              id="query"
              rows={2}
              required
              placeholder="What is to be done? Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world"
              value={query}
              onInput={(event) => setQuery(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || event.shiftKey) return;
                event.preventDefault();
                event.currentTarget.form?.requestSubmit();
              }}
            />
            <button type="submit" class="primary" disabled={isBusy}>
              {isBusy ? "Planning…" : "Plan it"}
            </button>
          </form>
        )}
      </header>
      {error && <Refused error={error} />}
      {text === "" ? (
        <Empty title="Say it, or write it">
          <p>
            Type what is to be done, and see which tools it takes. Or <button type="button" class="link" onClick={() => begin(EXAMPLE)}>write the plan as JSON</button>.
          </p>
        </Empty>
      ) : (
        <div class="compose-panes">
          <div class="pane">
            {plan && plan.tools.length > 0 && (
              <Graph
                drawing={plan.layout}
                leadsRight={false}
                looks={looks}
                selected={selected}
                onSelect={pick}
                label={`The plan: ${plan.tools.length} steps`}
                describe={(name) => name}
              />
            )}
          </div>
          <div class="pane compose-text">
            {steps && (
              <div class="pane-bar">
                <label class="unseen" for="add-step">
                  Add a step
                </label>
                <select
                  id="add-step"
                  class="add-step"
                  value=""
                  onChange={(event) => {
                    const tool = tools.find((it) => it.qualifiedName === event.currentTarget.value);
                    if (!tool) return;
                    const step = emptyStep(tool, new Set(steps.map(idOf)));
                    write([...steps, step]);
                    setSelected(idOf(step));
                  }}
                >
                  <option value="">Add a step…</option>
                  {tools.map((it) => (
                    <option key={it.qualifiedName} value={it.qualifiedName}>
                      {it.qualifiedName}
                    </option>
                  ))}
                </select>
                <span class="faint">or choose one in the picture</span>
              </div>
            )}
            {steps?.[place] && selected !== null && (
              <StepForm
                key={selected}
                step={steps[place]}
                name={selected}
                tools={tools}
                others={steps.map(idOf).filter((it) => it !== selected)}
                onStep={(step) => write(steps.with(place, step))}
                onRemove={() => {
                  write(steps.toSpliced(place, 1));
                  setSelected(null);
                }}
                onClose={() => setSelected(null)}
              />
            )}
            <Editor text={text} onText={setText} problems={problems} goal={goal} />
            <div class="compose-problems" aria-live="polite">
              {problems.length === 0 ? (
                <p class="fine">
                  <Icon name="check" /> Nothing is wrong with it.
                </p>
              ) : (
                <Problems problems={problems} onGo={(path) => setGoal({ path, count: (goal?.count ?? 0) + 1, isWanted: true })} />
              )}
            </div>
          </div>
        </div>
      )}
    </div>
  );
}

/** The steps of a text, if it is a plan. */
function stepsOf(text: string): Draft[] | null {
  const read = readDraft(text);
  return "problem" in read ? null : (read.input.tools as unknown as Draft[]);
}

/** What a step is called, as far as the text says. */
function idOf(step: Draft): string {
  return String(step.id ?? step.name ?? step.toolName ?? "");
}

/** Returns which entry of `tools` a step is. */
function draftPlace(steps: readonly Draft[] | null, step: string): number {
  return steps ? steps.findIndex((it) => idOf(it) === step) : -1;
}

interface RunProps {
  isBusy: boolean;
  hasErrors: boolean;
  onRun: (options: { mode: ExecutionMode; dryRun: boolean; input: Json | null }) => void;
  onKeep: (() => void) | null;
}

function RunBar({ isBusy, hasErrors, onRun, onKeep }: RunProps) {
  const [mode, setMode] = useState<ExecutionMode>("PARALLEL");
  const [isDry, setDry] = useState(false);
  return (
    <div class="buttons">
      <label class="check">
        <input type="checkbox" checked={isDry} onChange={(event) => setDry(event.currentTarget.checked)} />
        Dry run
      </label>
      <Choice label="Mode" value={mode} options={[["PARALLEL", "Parallel"], ["SEQUENTIAL", "One by one"]]} onChange={(it) => setMode(it as ExecutionMode)} />
      {onKeep && (
        <button type="button" disabled={isBusy || hasErrors} onClick={onKeep}>
          Keep
        </button>
      )}
      <button type="button" class="primary" disabled={isBusy || hasErrors} onClick={() => onRun({ mode, dryRun: isDry, input: null })}>
        <Icon name="play" />
        Run
      </button>
    </div>
  );
}
