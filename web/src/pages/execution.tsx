/** The page of an execution: its graph, its timeline, its log, and its steps. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, useAsk } from "../api/client";
import { useCell } from "../api/cell";
import { returns } from "../api/connection";
import { ExecutionOutputs, type Finding } from "../api/generated";
import { Failures, Notes, Onward, Waits } from "../execution/account";
import { Actions, Question, type Asking } from "../execution/actions";
import { AllLogs } from "../execution/all-logs";
import { Events } from "../execution/events";
import { about, useFindings } from "../execution/findings";
import { Groups, MAX_OPEN_NODES, pagesText, readOpenNodes, readPages, toggleOpenNode, type Pages, type Spot } from "../execution/groups";
import { Inspector } from "../execution/inspector";
import { ItemPanel, PlannedPanel } from "../execution/inside";
import { countFinishedItems, finishedItemsText, finishedLoopParts } from "../execution/items";
import type { Opening } from "../execution/panel";
import { Scrubber } from "../execution/scrubber";
import { Steps } from "../execution/steps";
import { Story } from "../execution/story";
import { Timeline } from "../execution/timeline";
import type { Drawn } from "../graph/drawn";
import { Graph } from "../graph/graph";
import { gatesText, type Scene } from "../graph/scene";
import { setParams, useOneOf, useParam } from "../router";
import { Fault, Refused, RefusedPage } from "../ui/fault";
import { JsonView } from "../ui/json";
import { restoreFocus } from "../ui/dialog";
import { Crumbs, Empty, isNarrow, Loading, Tabs, useTitle } from "../ui/page";
import { isFields } from "../api/json";
import { actorText, LastCommand } from "../execution/people";
import { listPath } from "../lists/filter";
import { Plain, plain } from "../ui/plain";
import { Meter, Pill, WORD } from "../ui/state";
import { formatAge, formatDateTime, startsText, elapsedText, useNow } from "../ui/time";

export function ExecutionPage({ id }: { id: string }) {
  const [story, setStory] = useState<Story | null | undefined>(undefined);
  const [error, setError] = useState<ApiError | null>(null);
  const epoch = useCell(returns);
  // A loaded execution subscribes again by itself when the server is back, so only a missing one is loaded here.
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
  if (story === null) return <Empty isPage title="There is no such execution"><p>Nothing is known by the id {id}.</p><a href="/executions">To the executions</a></Empty>;
  if (!story || isMissing) return <Loading isPage />;
  return <ExecutionView key={id} story={story} />;
}

const VIEWS = ["graph", "timeline", "steps", "logs", "events", "results"] as const;

/** The history state while a step's panel covers the whole page. */
const PANEL_STATE = "sheet";

/** Returns the graph of the plan with its open nodes. The old graph stays until the new one is ready. */
function useScene(groups: Groups, drawn: Drawn | null, open: readonly string[], pages: Pages): Scene | null {
  const [scene, setScene] = useState<Scene | null>(null);
  const epoch = useCell(returns);
  groups.show(open, pages);
  const { shape } = groups;
  useEffect(() => {
    if (!drawn) return;
    let isGone = false;
    groups
      .draw(drawn.direction)
      .then((it) => isGone || setScene(it))
      // If the server was unreachable, the graph is drawn when the server is back.
      .catch((error: ApiError) => isGone || error.code === "UNREACHABLE" || groups.failure.set(error));
    return () => {
      isGone = true;
    };
  }, [groups, drawn, shape, epoch]);
  return scene;
}

function ExecutionView({ story }: { story: Story }) {
  useState(() => {
    const at = Number(new URLSearchParams(location.search).get("at"));
    if (Number.isInteger(at) && at > 0 && at < story.lastSeq) story.scrub.set(at);
  });
  useCell(story.version);
  const failure = useCell(story.failure);
  const drawn = useCell(story.drawn);
  const groups = useMemo(() => new Groups(story), [story]);
  useEffect(() => () => groups.dispose(), [groups]);
  useCell(groups.version);
  const groupFailure = useCell(groups.failure);
  const [opened, setOpened] = useParam("open");
  const open = useMemo(() => readOpenNodes(opened), [opened]);
  const [turned] = useParam("items");
  const [selected] = useParam("step");
  const pages = useMemo(() => readPages(turned, selected), [turned, selected]);
  const scene = useScene(groups, drawn, open, pages);
  const scrub = useCell(story.scrub);
  const [view, setView] = useOneOf("view", VIEWS);
  const [asking, setAsking] = useState<{ story: Story; asking: Asking } | null>(null);
  const ask = useCallback((asking: Asking) => setAsking({ story, asking }), [story]);
  const [problem, setProblem] = useState<string | ApiError | null>(null);
  const findings = useFindings(story);
  const { live } = story;
  const fold = story.fold;
  const isRunning = !live.isOver;
  const now = useNow(live.count("RUNNING") > 0 ? 200 : 1_000, isRunning);
  const time = scrub === null ? now : fold.at;
  useTitle(`${WORD[live.state]} – ${plain(story.about.request?.query ?? story.about.executionId)}`);
  const steps = story.about.plan.tools;
  // Durations of running steps are drawn five times a second, not at every frame.
  const second = Math.floor(time / 200);
  const past = scrub === null ? null : fold.at;
  const spots = useMemo(() => scene?.nodes.map((it) => groups.find(it.name)) ?? [], [scene]);
  const looks = useMemo(() => groups.looks(spots, past, time), [spots, fold, fold.length, second, groups.version.value]);
  const opener = useRef<HTMLElement | null>(null);
  const select = useCallback((name: string | null) => {
    const now = new URLSearchParams(location.search);
    const wasOpen = now.get("step") !== null;
    if (name !== null) {
      // A click on a node that stands for another page of items shows this page.
      const step = name.replace(/-\]$/, "]");
      const next = { step, items: pagesText(readPages(now.get("items") ?? "", step)) };
      if (!wasOpen) opener.current = document.activeElement as HTMLElement | null;
      // On a phone, the panel covers the page, so the Back button closes it.
      if (!wasOpen && isNarrow()) setParams(next, "push", PANEL_STATE);
      else setParams(next);
      return;
    }
    if (history.state === PANEL_STATE) history.back();
    else setParams({ step: "" });
    restoreFocus(opener.current);
  }, []);
  const moveTo = useCallback((seq: number | null) => story.scrub.set(seq), [story]);
  // The URL gets the position after the slider has stopped, because browsers limit how often the URL may change.
  const isMoved = useRef(false);
  useEffect(() => {
    if (!isMoved.current && scrub === null) return;
    isMoved.current = true;
    const timer = setTimeout(() => setParams({ at: scrub === null ? "" : String(scrub) }), 300);
    return () => clearTimeout(timer);
  }, [scrub]);
  const spot = selected === "" ? null : groups.find(selected);
  // Lists contain only the steps of the outermost plan, so an inner node selects the row of its outermost step.
  const row = /^[^/[]*/.exec(selected)![0];
  const turn = useCallback((name: string) => {
    if (name.endsWith("-]")) return select(name);
    const next = toggleOpenNode(readOpenNodes(new URLSearchParams(location.search).get("open") ?? ""), name);
    if (next) setOpened(next.join(","));
    else setProblem(`At most ${MAX_OPEN_NODES} loops and plans can be open: close one first.`);
  }, []);
  const describe = (name: string) => {
    const it = groups.find(name);
    if (!it) return name;
    if (it.turnsTo !== null) return `items ${groups.rangeOf(it).join(" to ")} of ${it.step.stepId}`;
    const state = it.index === null ? groups.viewOf(it, past)?.state : groups.itemOf(it, past)?.state;
    const gates = it.index === null ? gatesText(looks[scene?.nodes.findIndex((node) => node.name === name) ?? -1]?.gates) : "";
    return `${name}, ${WORD[state ?? "PENDING"]}${gates}${groups.kindOf(it) ? `, ${holds(groups, it, past)}, ${open.includes(name) ? "open" : "closed"}` : ""}`;
  };
  return (
    <div class={`page execution${spot ? " has-inspector" : ""}`}>
      <Head story={story} now={now} onAsk={ask} onFail={setProblem} />
      {failure && <Refused error={failure} />}
      {groupFailure && <Refused error={groupFailure} />}
      {problem instanceof ApiError && <Refused error={problem} />}
      {typeof problem === "string" && (
        <p class="problem" role="alert">
          {problem} <button class="link" type="button" onClick={() => setProblem(null)}>Close</button>
        </p>
      )}
      {scrub === null && (
        <>
          <Waits story={story} findings={findings} onSelect={select} onAsk={ask} />
          <Failures story={story} findings={findings} onSelect={select} onAsk={ask} />
          <Notes story={story} findings={findings} onSelect={select} onAsk={ask} />
          <Onward story={story} />
        </>
      )}
      <Tabs label="Views of the execution" tabs={VIEWS} shown={view} onShow={setView} />
      <div class="split">
        <div class="pane" role="tabpanel" id="panel" aria-labelledby={`tab-${view}`}>
          {view === "graph" && !(drawn && scene) && <Loading />}
          {view === "graph" && drawn && scene && (
            <Graph
              drawing={scene}
              leadsRight={drawn.direction === "RIGHT"}
              looks={looks}
              selected={spot ? selected : null}
              onSelect={select}
              onToggle={turn}
              label={`The plan: ${steps.length} steps`}
              describe={describe}
            />
          )}
          {view === "timeline" && <Timeline story={story} fold={fold} now={time} selected={row} onSelect={select} />}
          {view === "steps" && <Steps story={story} fold={fold} findings={findings} now={time} selected={row} onSelect={select} />}
          {view === "logs" && <AllLogs story={story} fold={fold} onSelect={select} />}
          {view === "events" && <Events story={story} upTo={scrub ?? Infinity} onSelect={select} onScrub={moveTo} />}
          {view === "results" && <Results story={story} onSelect={select} />}
        </div>
        {spot && (
          <SelectedPanel
            key={selected}
            groups={groups}
            spot={spot}
            findings={spot.scope.story === story ? findings : null}
            past={past}
            now={time}
            opening={groups.kindOf(spot) ? { isOpen: open.includes(selected), onToggle: () => (setView("graph"), turn(selected)) } : null}
            onAsk={(it) => setAsking({ story: spot.scope.story ?? story, asking: it })}
            onSelect={select}
          />
        )}
      </div>
      <Scrubber story={story} onScrub={moveTo} />
      {asking && <Question {...asking} onClose={() => setAsking(null)} />}
    </div>
  );
}

/** Returns in words what a node contains. */
function holds(groups: Groups, spot: Spot, past: number | null): string {
  if (groups.kindOf(spot) === "plan") return "a sub-plan";
  const items = groups.viewOf(spot, past)?.items;
  return items ? `${countFinishedItems(items)} of ${items.total} items finished` : "a loop";
}

interface SelectedPanelProps {
  groups: Groups;
  spot: Spot;
  /** The findings about the execution that contains the node, if they are loaded. */
  findings: readonly Finding[] | null;
  past: number | null;
  now: number;
  opening: Opening | null;
  onAsk: (asking: Asking) => void;
  onSelect: (name: string | null) => void;
}

/** The panel about the selected node. */
function SelectedPanel({ groups, spot, findings: known, past, now, opening, onAsk, onSelect }: SelectedPanelProps) {
  const { scope, step, index } = spot;
  const own = useFindings(known ? null : scope.story);
  const findings = about(known ?? own, step.stepId, index);
  const view = groups.viewOf(spot, past);
  // An item is inside its loop. A step is inside the step or item that executes its plan.
  const parent = index === null ? scope.prefix.slice(0, -1) : scope.prefix + step.stepId;
  const around = parent === "" ? null : { name: parent, onGo: () => onSelect(parent) };
  const common = { step, opening, around, onClose: () => onSelect(null) };
  const go = (id: string) => onSelect(scope.prefix + id);
  const isPast = past !== null;
  if (!scope.story || !view) return <PlannedPanel {...common} onSelect={go} />;
  if (index !== null) return <ItemPanel {...common} story={scope.story} findings={findings} index={index} view={view} item={groups.itemOf(spot, past)} isPast={isPast} onAsk={onAsk} />;
  return <Inspector {...common} onSelect={go} story={scope.story} findings={findings} view={view} isPast={isPast} now={now} onAsk={onAsk} />;
}

interface HeadProps {
  story: Story;
  now: number;
  onAsk: (asking: Asking) => void;
  onFail: (error: ApiError) => void;
}

function Head({ story, now, onAsk, onFail }: HeadProps) {
  const { about, fold, live } = story;
  const created = live.createdAt ?? Date.parse(about.createdAt);
  const begin = live.startedAt ?? created;
  const iso = (at: number | null) => (at === null ? null : new Date(at).toISOString());
  const end = story.scrub.value === null ? live.finishedAt : fold.at;
  const items = finishedItemsText(fold.steps);
  const start = fold.state === "PENDING" && about.startAt !== null && Date.parse(about.startAt) > now ? about.startAt : null;
  return (
    <header class="head">
      <Crumbs trail={[["Requests", "/requests"], [about.requestId, `/requests/${about.requestId}`]]} here={about.executionId} />
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
        <Meter {...fold.counts} partly={finishedLoopParts(fold.steps)} />
        {items && <span>{items}</span>}
        <span title={formatDateTime(iso(created)!)}>
          created {formatAge(iso(created)!, now)}
          {about.createdBy && about.createdBy.kind !== "LOCAL" && <> by <Plain text={actorText(about.createdBy)} /></>}
        </span>
        {start ? <span>{startsText(start, now)}</span> : <span>{elapsedText(iso(begin), iso(end), now)}</span>}
        <span>{about.mode.toLowerCase()}</span>
        {fold.node && <span>Node {fold.node}</span>}
        <a href={`/plans/${about.planId}`}>plan, version {about.plan.version}</a>
        {about.dryRun && <span class="tag">dry run</span>}
        {isFields(about.labels) &&
          Object.entries(about.labels).map(([key, value]) => (
            <a key={key} class="tag" href={listPath({ label: `${key}=${String(value)}` })}>
              <Plain text={`${key}=${String(value)}`} />
            </a>
          ))}
        <LastCommand story={story} />
        {about.retryOf && (
          <a href={`/executions/${about.retryOf}`}>
            {about.plan.version > 1 ? "after" : "retry of"} {about.retryOf}
          </a>
        )}
        {about.forkedFrom && <a href={`/executions/${about.forkedFrom}`}>fork of {about.forkedFrom}</a>}
        <a href={`/compare?a=${about.retryOf ?? about.forkedFrom ?? ""}&b=${about.executionId}`}>Compare…</a>
        {about.parentExecutionId && (
          <a href={`/executions/${about.parentExecutionId}?step=${encodeURIComponent(about.parentStepId ?? "")}`}>
            sub-execution of {about.parentStepId}
            {about.parentIndex !== null && `[${about.parentIndex}]`}
          </a>
        )}
      </p>
    </header>
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
      {story.scrub.value !== null && <p class="why">Results are shown as they are now, and not as they were at the selected event.</p>}
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
        <JsonView value={results.outputs} label="outputs" root="" />
      </section>
      {Object.keys(results.variables ?? {}).length > 0 && (
        <section class="section">
          <h2>Variables</h2>
          <JsonView value={results.variables} label="variables" root="vars" />
        </section>
      )}
      {story.about.input !== null && (
        <section class="section">
          <h2>Input</h2>
          <JsonView value={story.about.input} label="input" root="input" />
        </section>
      )}
      <button type="button" class="link" onClick={() => setParams({ view: "" })}>
        Back to the graph
      </button>
    </div>
  );
}
