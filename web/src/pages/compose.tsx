/** The editor of plans. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, ask, useAsk } from "../api/client";
import { useCell } from "../api/cell";
import { returns } from "../api/connection";
import {
  CreatePlan,
  ExecutePlan,
  PlanExported,
  PlanOne,
  PlanQuery,
  RequestPage,
  RevisePlan,
  RunSavedPlan,
  ToolNames,
  ValidatePlan,
  type ExecutionOptions,
  type PlanDrawn,
  type PlanSummary,
  type Problem,
} from "../api/generated";
import type { Fields } from "../api/json";
import { NewerVersion } from "../plan/newer-version";
import { ToolPicker } from "../plan/tool-picker";
import { SaveAsDialog } from "../plan/save-as";
import { Graph } from "../graph/graph";
import { gatesText } from "../graph/scene";
import { MAX_OPEN_NODES, readOpenNodes, toggleOpenNode } from "../execution/groups";
import { idsOf, planText, readDraft } from "../plan/draft";
import { Editor, type Goal } from "../plan/editor";
import { find, holds, looksOf, stepOf, useInsides, type Source } from "../plan/insides";
import { storeUnsaved, readUnsaved } from "../plan/kept";
import { placeholderName, proposal } from "../plan/proposal";
import { lastRun, type LastRun } from "../plan/last-run";
import { inputsOf, RunAgainDialog, RunBar, RunDialog, type Wanted } from "../plan/run";
import { StepForm, emptyStep } from "../plan/step-form";
import { StartDraft } from "../plan/start-draft";
import { go, useParam } from "../router";
import { ActButton } from "../ui/act-button";
import { Problems, Refused, RefusedPage } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Crumbs, Empty, Loading, useTitle } from "../ui/page";
import { Plain, plain } from "../ui/plain";
import { countText, plannerText } from "../ui/words";

const EXAMPLE = `{
  "query": "Say hello",
  "tools": [
    { "id": "hello", "name": "flow.echo", "parameters": { "text": "Hello" } },
    { "id": "again", "name": "flow.echo", "parameters": { "said": "{{hello.text}}" } }
  ]
}`;

/** Time without typing before the server checks the text, in milliseconds. */
const CHECK_DELAY = 250;

/**
 * The page that creates and changes plans. After a plan is stored, its URL replaces the present one, and the rest of
 * the page stays.
 */
export function ComposePage({ from }: { from: string | null }) {
  const [request] = useParam("request");
  const session = useRef({ number: 0, loads: from, is: from, request });
  const isOther = session.current.is !== from || (from === null && session.current.request !== request);
  if (isOther) session.current = { number: session.current.number + 1, loads: from, is: from, request };
  const { number, loads, request: wanted } = session.current;
  const asked = useAsk(PlanOne, loads === null ? null : { id: loads, direction: "DOWN" });
  const become = (id: string) => {
    session.current.is = id;
    const query = new URLSearchParams(location.search);
    query.delete("request");
    const search = query.toString();
    go(`/plans/${id}${search === "" ? "" : `?${search}`}`, "replace");
  };
  if (loads === null && wanted !== "") return <ProposedDraft key={`${number} ${wanted}`} id={wanted} onBecome={become} />;
  if (loads === null) return <Compose key={number} known={null} start={null} onBecome={become} />;
  if (asked.error && !asked.data) return <RefusedPage title="Plan" error={asked.error} />;
  if (asked.data?.plan === null) return <Empty isPage title="There is no such plan"><p>Nothing is known by the id {loads}.</p><a href="/requests">To the requests</a></Empty>;
  if (!asked.data?.plan || asked.data.plan.planId !== loads) return <Loading isPage />;
  return <Compose key={number} known={{ plan: asked.data.plan, text: planText(asked.data.exportPlan) }} start={null} onBecome={become} />;
}

/** Loads a draft for a request whose planning failed. */
function ProposedDraft({ id, onBecome }: { id: string; onBecome: (id: string) => void }) {
  const asked = useAsk(RequestPage, { id });
  const tools = useAsk(ToolNames, {});
  const error = asked.error ?? tools.error;
  if (error && (!asked.data || !tools.data)) return <RefusedPage title="New plan" error={error} />;
  if (asked.data?.request === null) return <Empty isPage title="There is no such request">Nothing is known by the id {id}.</Empty>;
  if (!asked.data?.request || !tools.data) return <Loading isPage />;
  const { request } = asked.data;
  return <Compose known={null} start={{ id, query: request.query, ...proposal(request, tools.data.tools) }} onBecome={onBecome} />;
}

/** A stored plan, and its text in the editor. */
interface Stored {
  about: PlanSummary;
  text: string;
  plan: PlanDrawn | null;
  /** Tells where to query the sub-plans of the drawn plan: by their ids, or as parts of the draft. */
  source: Source;
  problems: readonly Problem[];
}

/** The diagnostics of the server for a text. */
interface Checked {
  text: string;
  problems: readonly Problem[];
}

interface ComposeProps {
  known: { plan: PlanDrawn; text: string } | null;
  /** The initial draft for a request. */
  start: { id: string; query: string; text: string; uncovered: string[] } | null;
  onBecome: (id: string) => void;
}

function Compose({ known, start, onBecome }: ComposeProps) {
  const [stored, setStored] = useState<Stored | null>(() => known && { about: known.plan, text: known.text, plan: known.plan, source: { id: known.plan.planId }, problems: known.plan.diagnostics });
  const address = stored ? `/plans/${stored.about.planId}` : start ? `/new?request=${start.id}` : "/new";
  const [kept] = useState(() => readUnsaved(address));
  const [query, setQuery] = useState(kept?.query ?? start?.query ?? "");
  const [text, setText] = useState(kept?.text ?? known?.text ?? start?.text ?? "");
  const [isBack, setBack] = useState(kept !== null && known !== null && kept.text !== known.text);
  const [shown, show] = useState<{ plan: PlanDrawn; source: Source } | null>(() => known && { plan: known.plan, source: { id: known.plan.planId } });
  const plan = shown?.plan ?? null;
  const [opened, setOpened] = useParam("open");
  const open = useMemo(() => readOpenNodes(opened), [opened]);
  const [checked, setChecked] = useState<Checked | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [selected, setSelected] = useState<string | null>(null);
  const [goal, setGoal] = useState<Goal | null>(null);
  const [asking, setAsking] = useState<ExecutionOptions | null>(null);
  const [isSaving, setSaving] = useState(false);
  const [repeating, setRepeating] = useState<{ options: ExecutionOptions; last: LastRun } | null>(null);
  const epoch = useCell(returns);
  // Once the user has typed, the editor stays open, even with an empty text.
  const begun = useRef(known !== null);
  if (text !== "") begun.current = true;
  const isBegun = begun.current;
  const isChanged = text !== (stored?.text ?? "");
  useTitle(stored ? `Plan: ${plain(stored.about.query)}` : "New plan");

  const asked = useAsk(ToolNames, {});
  const tools = asked.data?.tools ?? [];
  const draft = useMemo(() => readDraft(text), [text]);
  const steps = "steps" in draft ? draft.steps : null;
  /** The steps of the last text that could be parsed. During typing, the text is often invalid. */
  const readable = useRef<readonly Fields[]>([]);
  if (steps) readable.current = steps;
  const ids = useMemo(() => (steps ? idsOf(steps) : []), [steps]);
  /** Replaces the steps, and keeps the other fields of the text. */
  const write = (next: Fields[]) => setText(planText({ ...("whole" in draft ? draft.whole : {}), tools: next }));

  const waits = useRef<(() => void) | null>(null);
  useLayoutEffect(() => {
    // The browser keeps unsaved text until the plan is stored.
    const keep = () => {
      clearTimeout(timer);
      waits.current = null;
      storeUnsaved(address, isChanged || (!stored && query !== "") ? { query, text } : null);
    };
    const timer = setTimeout(keep, CHECK_DELAY);
    waits.current = keep;
    return () => clearTimeout(timer);
  }, [address, query, text, isChanged, stored]);
  useLayoutEffect(() => {
    const flush = () => waits.current?.();
    addEventListener("pagehide", flush);
    return () => {
      removeEventListener("pagehide", flush);
      flush();
    };
  }, []);

  useEffect(() => {
    setError(null);
    if (!isBegun) return;
    if (stored && text === stored.text) {
      setChecked({ text, problems: stored.problems });
      if (stored.plan) show({ plan: stored.plan, source: stored.source });
      return;
    }
    if ("problems" in draft) {
      setChecked({ text, problems: draft.problems });
      return;
    }
    const gone = new AbortController();
    const timer = setTimeout(() => {
      ask(ValidatePlan, { input: draft.input, direction: "DOWN" }, gone.signal).then(
        ({ validatePlan }) => {
          setChecked({ text, problems: validatePlan.diagnostics });
          if (validatePlan.plan) show({ plan: validatePlan.plan, source: { input: draft.input } });
        },
        (error: ApiError) => {
          if (gone.signal.aborted) return;
          // If the server is unreachable, the check runs again later. Any other error is shown like one of the text.
          if (error.code === "UNREACHABLE") setError(error);
          else setChecked({ text, problems: [{ severity: "ERROR", code: error.code, path: "", message: error.message, help: null }] });
        },
      );
    }, CHECK_DELAY);
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [text, stored, draft, isBegun, epoch]);

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
  /** Notes that the text is stored, and shows the URL of the plan. */
  const take = (it: Stored) => {
    storeUnsaved(address, null);
    waits.current = null;
    setStored(it);
    setText(it.text);
    setBack(false);
    onBecome(it.about.planId);
  };
  const planIt = () =>
    doing(async () => {
      const { createPlanWithRequestId: made } = await ask(PlanQuery, { query, direction: "DOWN" });
      const { exportPlan } = await ask(PlanExported, { id: made.planId });
      show({ plan: made, source: { id: made.planId } });
      setSelected(null);
      setOpened("");
      take({ about: made, text: planText(exportPlan), plan: made, source: { id: made.planId }, problems: made.diagnostics });
    });
  /** Stores the text as a new plan or the next version, and returns its id. */
  const keep = async (): Promise<string> => {
    if (stored && !isChanged) return stored.about.planId;
    if ("problems" in draft) throw new ApiError(draft.problems[0]?.message ?? "this is not a plan", "INVALID_PLAN");
    const { input } = draft;
    const it = stored ? (await ask(RevisePlan, { id: stored.about.planId, input })).revisePlan : (await ask(CreatePlan, { input })).createPlan;
    if (!it.plan) {
      setChecked({ text, problems: it.diagnostics });
      throw new ApiError("the plan has errors: see the diagnostics", "INVALID_PLAN");
    }
    take({ about: it.plan, text, plan: checked?.text === text ? plan : null, source: { input }, problems: it.diagnostics });
    return it.plan.planId;
  };
  const run = async ({ options, saved }: Wanted) => {
    const id = await keep();
    const { input, ...rest } = options;
    const { executionId } = saved
      ? (await ask(RunSavedPlan, { name: saved, input: input ?? null, options: rest })).runSavedPlan
      : (await ask(ExecutePlan, { id, options })).executePlan;
    go(`/executions/${executionId}`);
  };
  const readLast = async (signal?: AbortSignal) => (stored ? lastRun(stored.about.requestId, steps ?? [], signal) : null);
  /** Runs the plan. If that would repeat calls of the plan's last execution, asks the user first. */
  const begin = (options: ExecutionOptions) =>
    doing(async () => {
      const last = options.dryRun === true ? null : await readLast();
      if (last) setRepeating({ options, last });
      else await run({ options, saved: null });
    });
  const isCurrent = checked?.text === text;
  const problems = checked?.problems ?? [];
  const errors = isCurrent || "problems" in draft ? problems.filter((it) => it.severity === "ERROR").length : 0;
  const insides = useInsides(shown, open, setError);
  const looks = useMemo(() => (insides ? looksOf(insides) : []), [insides]);
  const whole = "whole" in draft ? draft.whole : null;
  const written = useMemo(() => (whole && selected !== null ? find(whole, selected) : null), [whole, selected]);
  const elsewhere = selected !== null && whole && !written ? insides?.steps.get(selected) : undefined;
  const pick = (node: string | null) => {
    const name = node === null ? null : stepOf(node);
    setSelected(name);
    const found = name !== null && whole ? find(whole, name) : null;
    if (found) setGoal({ path: found.path, count: (goal?.count ?? 0) + 1, isWanted: false });
  };
  const turn = (name: string) => {
    const next = toggleOpenNode(readOpenNodes(new URLSearchParams(location.search).get("open") ?? ""), name);
    if (next) setOpened(next.join(","));
    else setError(new ApiError(`at most ${MAX_OPEN_NODES} loops and plans can be open: close one first`, "LIMIT_EXCEEDED"));
  };
  const describe = (node: string) => {
    const found = insides?.steps.get(node);
    if (!found) return `each item of ${stepOf(node)}`;
    const inside = holds(found);
    const name = node + gatesText(looks[insides!.scene.nodes.findIndex((it) => it.name === node)]?.gates);
    return inside === "" ? name : `${name}, ${inside}, ${open.includes(node) ? "open" : "closed"}`;
  };
  return (
    <div class="page compose">
      <header class="head">
        {stored && <Crumbs trail={[["Requests", "/requests"], [stored.about.requestId, `/requests/${stored.about.requestId}`]]} here={stored.about.planId} />}
        <div class="head-line">
          <h1 class="cut" tabIndex={-1}>
            {stored ? <Plain text={stored.about.query} /> : "New plan"}
          </h1>
          {text !== "" && (
            <RunBar
              isBusy={isBusy}
              hasErrors={errors > 0}
              onRun={(it) => (inputsOf(steps ?? []).length > 0 ? setAsking(it) : void begin(it))}
              onMore={setAsking}
              onSaveAs={() => setSaving(true)}
              onKeep={isChanged ? () => void doing(async () => void (await keep())) : null}
            />
          )}
        </div>
        {stored ? (
          <p class="facts">
            <span>version {stored.about.version}</span>
            <NewerVersion requestId={stored.about.requestId} version={stored.about.version} />
            <span>{countText(steps?.length ?? plan?.tools.length ?? 0, "step")}</span>
            <span>{plannerText(stored.about.planner)}</span>
            {isChanged && <span class="tag">changed: it will be the next version</span>}
            {isBack && isChanged && (
              <button
                type="button"
                class="link"
                onClick={() => {
                  setText(stored.text);
                  setBack(false);
                }}
              >
                Discard the earlier text
              </button>
            )}
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
              What should be done?
            </label>
            <textarea
              id="query"
              rows={2}
              required
              placeholder="What should be done? Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world"
              value={query}
              onInput={(event) => setQuery(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
                event.preventDefault();
                event.currentTarget.form?.requestSubmit();
              }}
            />
            <ActButton needs="createPlanWithRequestId" type="submit" class="primary" disabled={isBusy}>
              {isBusy ? "Planning…" : "Create plan"}
            </ActButton>
          </form>
        )}
      </header>
      {error && <Refused error={error} actions={draftOf(error)} />}
      {start && !stored && <UncoveredParts uncovered={start.uncovered} steps={steps} />}
      {!isBegun ? (
        <Empty title="Describe the task, or write the plan">
          <p>
            Describe the task to see which tools fit it. Or <button type="button" class="link" onClick={() => setText(EXAMPLE)}>write the plan as JSON</button>.
          </p>
        </Empty>
      ) : (
        <div class="compose-panes">
          <div class="pane compose-drawing">
            {plan && errors > 0 && (
              <p class="veil" role="status">
                The text has errors. The drawing shows the last valid text.
              </p>
            )}
            {plan && insides && plan.tools.length > 0 && (
              <Graph
                drawing={insides.scene}
                leadsRight={false}
                looks={looks}
                selected={selected}
                onSelect={pick}
                onToggle={turn}
                label={`The plan: ${countText(plan.tools.length, "step")}`}
                describe={describe}
              />
            )}
          </div>
          <div class="pane compose-text">
            {steps && (
              <div class="pane-bar">
                <ToolPicker
                  tools={tools}
                  onPick={(tool) => {
                    const step = emptyStep(tool, new Set(ids));
                    write([...steps, step]);
                    setSelected(String(step.id));
                  }}
                />
                <span class="faint">or choose one in the drawing</span>
              </div>
            )}
            {written && selected !== null && (
              <StepForm
                key={selected}
                step={written.step}
                name={selected}
                tools={tools}
                others={written.others}
                onStep={(step) => setText(planText(written.replaced(step)))}
                onRename={(id) => {
                  setText(planText(written.replaced({ id, ...withoutId(written.step) })));
                  setSelected(selected.slice(0, selected.lastIndexOf("/") + 1) + id);
                }}
                onRemove={() => {
                  setText(planText(written.replaced(null)));
                  setSelected(null);
                }}
                onClose={() => setSelected(null)}
              />
            )}
            {elsewhere && "id" in elsewhere.source && (
              <p class="pane-bar">
                <code>{selected}</code> is a step of another plan, which this one only names.
                <a href={`/plans/${elsewhere.source.id}`}>Open that plan</a>
              </p>
            )}
            <Editor text={text} onText={setText} problems={problems} goal={goal} steps={readable.current} tools={tools} />
            <div class="compose-problems" aria-live="polite">
              {problems.length > 0 && <Problems problems={problems} onGo={(path) => setGoal({ path, count: (goal?.count ?? 0) + 1, isWanted: true })} />}
              {!isCurrent && problems.length === 0 && <p class="faint">{error ? "It could not be checked." : "It is being checked…"}</p>}
              {isCurrent && problems.length === 0 && (
                <p class="fine">
                  <Icon name="check" /> Plan is valid.
                </p>
              )}
            </div>
          </div>
        </div>
      )}
      {asking && (
        <RunDialog
          requestId={stored?.about.requestId ?? null}
          planId={stored && !isChanged ? stored.about.planId : null}
          inputs={inputsOf(steps ?? [])}
          readLast={readLast}
          start={asking}
          onRun={run}
          onClose={() => setAsking(null)}
        />
      )}
      {isSaving && <SaveAsDialog keep={keep} inputs={inputsOf(steps ?? [])} onClose={() => setSaving(false)} />}
      {repeating && (
        <RunAgainDialog last={repeating.last} onRun={() => run({ options: repeating.options, saved: null })} onClose={() => setRepeating(null)} />
      )}
    </div>
  );
}

function withoutId({ id: _, ...rest }: Fields): Fields {
  return rest;
}

/** A link to a draft for the request for which the planner found no plan. */
function draftOf({ code, extensions }: ApiError) {
  return code === "NO_PLAN_FOUND" && typeof extensions.requestId === "string" ? <StartDraft id={extensions.requestId} /> : null;
}

/** Lists the parts of the query that the draft does not cover yet. */
function UncoveredParts({ uncovered, steps }: { uncovered: readonly string[]; steps: readonly Fields[] | null }) {
  const names = steps?.map((step) => String(step.name ?? step.toolName ?? ""));
  const left = uncovered.filter((part) => !names || names.includes(placeholderName(part)));
  return (
    <section class="waits" aria-label="What the draft does not cover">
      {left.length > 0 && (
        <>
          <p>The draft does not cover {left.length === 1 ? "this part" : "these parts"} of the query:</p>
          <ul>
            {left.map((part) => (
              <li key={part}>
                <q>
                  <Plain text={part} />
                </q>
              </li>
            ))}
          </ul>
        </>
      )}
      <p>{left.length > 0 ? "Write a tool in place of each TODO, or remove the step. " : ""}Fill in the values that the other steps need.</p>
    </section>
  );
}
