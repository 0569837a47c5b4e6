/** One execution: its graph, its times, its log, and each of its steps. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, useAsk } from "../api/client";
import { useCell } from "../api/cell";
import { returns } from "../api/connection";
import { ExecutionNow, ExecutionOutputs } from "../api/generated";
import { Actions, Question, type Asking } from "../execution/actions";
import { Events } from "../execution/events";
import { Inspector } from "../execution/inspector";
import { looksOf } from "../execution/looks";
import { Scrubber } from "../execution/scrubber";
import { Steps } from "../execution/steps";
import { Story } from "../execution/story";
import { Timeline } from "../execution/timeline";
import { Graph } from "../graph/graph";
import { setParams, useParam } from "../router";
import { Fault, Refused, RefusedPage } from "../ui/fault";
import { JsonView } from "../ui/json";
import { back } from "../ui/dialog";
import { Crumbs, Empty, isNarrow, Loading, Tabs, useTitle } from "../ui/page";
import { Plain, plain } from "../ui/plain";
import { Words } from "../ui/words";
import { Meter, Pill, WORD } from "../ui/state";
import { ago, took, useNow } from "../ui/time";

export function ExecutionPage({ id }: { id: string }) {
  const [story, setStory] = useState<Story | null | undefined>(undefined);
  const [error, setError] = useState<ApiError | null>(null);
  const epoch = useCell(returns);
  // A story that is there goes on by itself when the server comes back.
  const isMissing = !story || story.about.executionId !== id;
  useEffect(() => {
    if (!isMissing) return;
    const gone = new AbortController();
    setStory(undefined);
    setError(null);
    Story.open(id, gone.signal)
      .then(setStory)
      .catch((error: ApiError) => gone.signal.aborted || setError(error));
    return () => gone.abort();
  }, [id, isMissing ? epoch : 0]);
  useEffect(() => story?.watch(), [story]);
  if (error) return <RefusedPage title="Execution" error={error} />;
  if (story === null) return <Empty isPage title="There is no such execution">Nothing is known by the id {id}.</Empty>;
  if (!story || isMissing) return <Loading />;
  return <Told key={id} story={story} />;
}

const VIEWS = ["graph", "timeline", "steps", "events", "results"] as const;

/** What the history says of a step that covers everything. */
const SHEET = "sheet";

function Told({ story }: { story: Story }) {
  useState(() => {
    const at = Number(new URLSearchParams(location.search).get("at"));
    if (Number.isInteger(at) && at > 0 && at < story.lastSeq) story.scrub.set(at);
  });
  useCell(story.version);
  const failure = useCell(story.failure);
  const drawn = useCell(story.drawn);
  const scrub = useCell(story.scrub);
  const [view, setView] = useParam("view", "graph");
  const [selected, setSelected] = useParam("step");
  const [asking, setAsking] = useState<Asking | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const { live } = story;
  const fold = story.fold;
  const isRunning = !live.isOver;
  const now = useNow(live.count("RUNNING") > 0 ? 200 : 1_000, isRunning);
  const time = scrub === null ? now : fold.at;
  useTitle(`${WORD[live.state]} – ${plain(story.about.request?.query ?? story.about.executionId)}`);
  const steps = story.about.plan.tools;
  // Times of running steps need not be drawn anew at every frame.
  const second = Math.floor(time / 200);
  const looks = useMemo(() => looksOf(steps, fold, time), [steps, fold, fold.length, second]);
  const opener = useRef<HTMLElement | null>(null);
  const select = useCallback((name: string | null) => {
    const wasOpen = new URLSearchParams(location.search).get("step") !== null;
    if (name !== null) {
      if (!wasOpen) opener.current = document.activeElement as HTMLElement | null;
      // On a phone a step covers everything: the way back from it is the way back.
      if (!wasOpen && isNarrow()) setParams({ step: name }, "push", SHEET);
      else setSelected(name);
      return;
    }
    if (history.state === SHEET) history.back();
    else setSelected("");
    back(opener.current);
  }, []);
  const moveTo = useCallback((seq: number | null) => story.scrub.set(seq), [story]);
  // The moment is in the address, once the slider rests: browsers do not let it change at every step.
  const isMoved = useRef(false);
  useEffect(() => {
    if (!isMoved.current && scrub === null) return;
    isMoved.current = true;
    const timer = setTimeout(() => setParams({ at: scrub === null ? "" : String(scrub) }), 300);
    return () => clearTimeout(timer);
  }, [scrub]);
  const step = story.stepOf.get(selected);
  const state = step && fold.step(step.stepId);
  const describe = (name: string) => {
    const it = fold.step(name);
    return it ? `${name}, ${WORD[it.state]}` : name;
  };
  return (
    <div class={`page execution${step ? " has-inspector" : ""}`}>
      <Head story={story} now={now} onAsk={setAsking} onFail={setProblem} />
      {failure && <Refused error={failure} />}
      {problem && (
        <p class="problem" role="alert">
          {problem} <button class="link" type="button" onClick={() => setProblem(null)}>Close</button>
        </p>
      )}
      {scrub === null && <Waits story={story} onSelect={select} />}
      {scrub === null && <Failures story={story} onSelect={select} />}
      <Tabs label="Views of the execution" tabs={VIEWS} shown={view} onShow={setView} />
      <div class="split">
        <div class="pane" role="tabpanel" id="panel" aria-labelledby={`tab-${view}`}>
          {view === "graph" && !drawn && <Loading />}
          {view === "graph" && drawn && (
            <Graph
              drawing={drawn.drawing}
              leadsRight={drawn.direction === "RIGHT"}
              looks={looks}
              selected={step ? step.stepId : null}
              onSelect={select}
              label={`The plan: ${steps.length} steps`}
              describe={describe}
            />
          )}
          {view === "timeline" && <Timeline story={story} fold={fold} now={time} selected={selected} onSelect={select} />}
          {view === "steps" && <Steps story={story} fold={fold} now={time} selected={selected} onSelect={select} />}
          {view === "events" && <Events story={story} upTo={scrub ?? Infinity} onSelect={select} onScrub={moveTo} />}
          {view === "results" && <Results story={story} onSelect={select} />}
        </div>
        {step && state && (
          <Inspector
            key={step.stepId}
            story={story}
            step={step}
            view={state}
            isPast={scrub !== null}
            now={time}
            onAsk={setAsking}
            onSelect={select}
            onClose={() => select(null)}
          />
        )}
      </div>
      <Scrubber story={story} onScrub={moveTo} />
      {asking && <Question story={story} asking={asking} onClose={() => setAsking(null)} />}
    </div>
  );
}

interface HeadProps {
  story: Story;
  now: number;
  onAsk: (asking: Asking) => void;
  onFail: (error: string) => void;
}

function Head({ story, now, onAsk, onFail }: HeadProps) {
  const { about, fold, live } = story;
  const created = live.createdAt ?? Date.parse(about.createdAt);
  const begin = live.startedAt ?? created;
  const iso = (at: number | null) => (at === null ? null : new Date(at).toISOString());
  const end = story.scrub.value === null ? live.finishedAt : fold.at;
  return (
    <header class="head">
      <Crumbs trail={[["Requests", "/"], [about.requestId, `/requests/${about.requestId}`]]} here={about.executionId} />
      <div class="head-line">
        <h1 class="cut" tabIndex={-1}>
          <Plain text={about.request?.query ?? "Execution"} />
        </h1>
        <Actions story={story} onAsk={onAsk} onFail={onFail} />
      </div>
      <p class="facts">
        <span role="status">
          <Pill state={fold.state} />
        </span>
        <Meter {...fold.counts} />
        <span title={new Date(created).toISOString()}>{ago(iso(created)!, now)}</span>
        <span>{took(iso(begin), iso(end), now)}</span>
        <span>{about.mode.toLowerCase()}</span>
        {fold.node && <span>on {fold.node}</span>}
        <a href={`/plans/${about.planId}`}>plan, version {about.plan.version}</a>
        {about.dryRun && <span class="tag">dry run</span>}
        {about.retryOf && <a href={`/executions/${about.retryOf}`}>retry of {about.retryOf}</a>}
        {about.parentExecutionId && (
          <a href={`/executions/${about.parentExecutionId}?step=${encodeURIComponent(about.parentStepId ?? "")}`}>
            part of {about.parentStepId}
            {about.parentIndex !== null && `[${about.parentIndex}]`}
          </a>
        )}
      </p>
    </header>
  );
}

/** Why it does not go on by itself. */
function Waits({ story, onSelect }: { story: Story; onSelect: (id: string) => void }) {
  const { live } = story;
  const isStill = !live.isOver && (live.state === "WAITING" || live.state === "PAUSED" || live.state === "PENDING" || live.waiting > 0);
  const asked = useAsk(ExecutionNow, isStill ? { id: story.about.executionId } : null, 2_000);
  const waits = isStill ? (asked.data?.execution?.waitsFor ?? []) : [];
  if (waits.length === 0) return null;
  return (
    <ul class="waits" aria-label="What it waits for">
      {waits.slice(0, 5).map((it, at) => (
        <li key={at}>
          <Words text={it.message} />
          {it.stepId && (
            <button type="button" class="link" onClick={() => onSelect(it.stepId ?? "")}>
              Look at it
            </button>
          )}
        </li>
      ))}
      {waits.length > 5 && <li class="faint">and {waits.length - 5} more</li>}
    </ul>
  );
}

/** The most steps whose failure is told at the top. */
const TOLD = 3;

/** Why it did not end well. */
function Failures({ story, onSelect }: { story: Story; onSelect: (id: string) => void }) {
  const { live } = story;
  // What could not be undone is told first, and however it ended: nobody else will see to it.
  const told = live.steps.flatMap((it) => (it.undoError ? [{ id: it.id, what: "could not be undone: ", error: it.undoError }] : []));
  if (live.state === "FAILED") {
    for (const it of live.steps) if (it.state === "FAILED") told.push({ id: it.id, what: "", error: it.error ?? { code: "", message: "", retryable: false } });
  }
  if (told.length === 0) return null;
  return (
    <ul class="waits is-bad" aria-label="What failed">
      {told.slice(0, TOLD).map((it) => (
        <li key={it.id + it.what}>
          <code>{it.id}</code>
          <span class="cut">
            {it.what}
            <Words text={it.error.message.slice(0, 300)} />
          </span>
          <button type="button" class="link" onClick={() => onSelect(it.id)}>
            Look at it
          </button>
        </li>
      ))}
      {told.length > TOLD && <li>and {told.length - TOLD} more</li>}
    </ul>
  );
}

function Results({ story, onSelect }: { story: Story; onSelect: (id: string) => void }) {
  const asked = useAsk(ExecutionOutputs, { id: story.about.executionId });
  useEffect(() => asked.refresh(), [story.live.isOver]);
  const results = asked.data?.execution?.executionResults;
  if (asked.error) return <Refused error={asked.error} />;
  if (!results) return <Loading />;
  return (
    <div class="results">
      {story.scrub.value !== null && <p class="why">Results are shown as they are now, whatever moment of the log is.</p>}
      {results.errors.length > 0 && (
        <section class="section">
          <h2>Errors</h2>
          {results.errors.map((it, at) => (
            <div key={at}>
              <button type="button" class="link mono" onClick={() => onSelect(it.stepId)}>
                {it.stepId}
                {it.index !== null && `[${it.index}]`}
              </button>
              <Fault code={it.code} message={it.message} />
            </div>
          ))}
        </section>
      )}
      <section class="section">
        <h2>Outputs</h2>
        <JsonView value={results.outputs} label="outputs" />
      </section>
      {Object.keys(results.variables ?? {}).length > 0 && (
        <section class="section">
          <h2>Variables</h2>
          <JsonView value={results.variables} label="variables" />
        </section>
      )}
      {story.about.input !== null && (
        <section class="section">
          <h2>Input</h2>
          <JsonView value={story.about.input} label="input" />
        </section>
      )}
      <button type="button" class="link" onClick={() => setParams({ view: "" })}>
        Back to the graph
      </button>
    </div>
  );
}
