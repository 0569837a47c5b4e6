/** All about one step: what it was to do, what it did, and why. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { StepDetail, type Json, type StepDetailResult, type StepState } from "../api/generated";
import { print } from "../api/json";
import { Fault, hasSomething } from "../ui/fault";
import { Icon } from "../ui/icons";
import { JsonView, omitted } from "../ui/json";
import { plain } from "../ui/plain";
import { Pill, WORD } from "../ui/state";
import { clock, span } from "../ui/time";
import { Words } from "../ui/words";
import type { Asking } from "./actions";
import { spentIn, type StepView } from "./fold";
import { ItemList, TOGETHER } from "./item-list";
import { itemsIn, itemsSaid } from "./items";
import { Logs } from "./logs";
import { Panel, Section, type Around, type Opening } from "./panel";
import type { Step, Story } from "./story";

export type Detail = NonNullable<NonNullable<StepDetailResult["execution"]>["step"]>;

/** How many items are shown at first, and how many more each time somebody asks. */
const ITEMS = 100;
/** How long a loop that runs is left alone between two questions about it, in milliseconds. */
const PAUSE = 500;

interface Props {
  story: Story;
  step: Step;
  view: StepView;
  isPast: boolean;
  now: number;
  opening: Opening | null;
  around: Around | null;
  onAsk: (asking: Asking) => void;
  onSelect: (id: string) => void;
  onClose: () => void;
}

export function Inspector({ story, step, view, isPast, now, opening, around, onAsk, onSelect, onClose }: Props) {
  const id = story.about.executionId;
  // The whole values come from the server, and only the events' short ones from the log.
  const wantsDetail = !isPast && view.state !== "PENDING";
  const [items, setItems] = useState<{ first: number; from: number; states: StepState[] | null }>({ first: ITEMS, from: 0, states: null });
  const asked = useAsk(StepDetail, wantsDetail ? { id, stepId: step.stepId, items: items.first, after: items.from > 0 ? items.from - 1 : null, states: items.states } : null);
  const mark = `${view.state} ${view.attempts} ${view.items ? Object.values(view.items.counts).join(" ") : ""} ${view.tries.filter((it) => it.isUndo).length} ${view.undoError?.message ?? ""}`;
  const latest = useRef({ mark, asked: mark, timer: 0 });
  latest.current.mark = mark;
  useEffect(() => {
    const now = latest.current;
    if (now.mark === now.asked || now.timer) return;
    // The items of a loop may change hundreds of times a second: what is asked for must have time to come.
    const ask = () => {
      now.timer = 0;
      now.asked = now.mark;
      asked.refresh();
    };
    now.timer = setTimeout(ask, view.items ? PAUSE : 0) as unknown as number;
  }, [mark]);
  useEffect(() => () => clearTimeout(latest.current.timer), []);
  const found = asked.data?.execution?.step;
  const detail = wantsDetail && found?.stepId === step.stepId ? found : null;
  const resolved = detail ? (detail.resolvedParameters ?? undefined) : view.parameters;
  const output = detail ? (detail.state === "SUCCEEDED" || hasSomething(detail.output) ? detail.output : undefined) : view.output;
  const running = itemsSaid([view]);
  return (
    <Panel
      name={step.stepId}
      opening={opening}
      around={around}
      onClose={onClose}
      facts={
        <>
          <Pill state={view.state} />
          {view.undoError && <span class="tag tone-bad">not undone</span>}
          <ToolName step={step} />
          {running && <span>{running}</span>}
          {view.from !== null && <span>{spentIn(view, now)}</span>}
          {view.attempts > 1 && <span>{view.attempts} attempts</span>}
          {(detail?.reused ?? view.isReused) && <span>output taken over</span>}
        </>
      }
      actions={<StepActions story={story} view={view} isPast={isPast} onAsk={onAsk} />}
    >
      {view.error && view.state !== "SUCCEEDED" && (
        <Section title="Error">
          <Fault code={view.error.code} message={detail?.error?.message ?? view.error.message} note={view.error.retryable ? "retryable" : ""} actions={<EditPlan planId={story.about.planId} />} />
        </Section>
      )}
      {view.undoError && (
        <Section title="Could not be undone">
          <Fault code={view.undoError.code} message={detail?.compensation?.error?.message ?? view.undoError.message} />
        </Section>
      )}
      <Why view={view} />
      {(detail?.warnings ?? view.warnings).map((it) => (
        <p class="warning" key={it}>
          <Words text={it} />
        </p>
      ))}
      {(view.child ?? detail?.childExecutionId) && (
        <Section title="Other execution">
          <a href={`/executions/${view.child ?? detail?.childExecutionId}`} class="mono">
            {view.child ?? detail?.childExecutionId}
          </a>
        </Section>
      )}
      <Parameters written={step.parameters} resolved={resolved} />
      {output !== undefined && view.state !== "PENDING" && (
        <Section title="Output">
          <Whole value={output} label={`output of ${step.stepId}`} />
        </Section>
      )}
      {detail && (detail.itemTally?.total ?? 0) > 0 && (
        <ItemList
          detail={detail}
          states={items.states}
          from={items.from}
          asked={items.first}
          onStates={(states) => setItems({ first: ITEMS, from: 0, states })}
          onFrom={(from) => setItems((old) => ({ ...old, first: ITEMS, from }))}
          onMore={() => setItems((old) => ({ ...old, first: Math.min(TOGETHER, old.first + 5 * ITEMS) }))}
          onSelect={(index) => onSelect(`${step.stepId}[${index}]`)}
          onAsk={isPast || story.live.isOver ? null : onAsk}
        />
      )}
      {view.lines && <Logs lines={view.lines} index={null} />}
      {view.tries.length > 0 && <Attempts view={view} now={now} node={story.fold.node} />}
      {detail?.compensation && (
        <Section title="Compensated by">
          <Pill state={detail.compensation.state} />
          <JsonView value={detail.compensation.resolvedParameters} label="compensation's parameters" open={1} />
        </Section>
      )}
      <Rules step={step} onSelect={onSelect} />
    </Panel>
  );
}

export function ToolName({ step }: { step: Step }) {
  if (step.plan) {
    return (
      <a class="mono" href={`/plans/${step.plan}`}>
        {step.plan}
      </a>
    );
  }
  return (
    <a class="mono" href={`/tools/${encodeURIComponent(step.toolName)}`}>
      {step.toolName}
    </a>
  );
}

/** A value that may have been left out for its size. */
export function Whole({ value, label }: { value: Json | undefined; label: string }) {
  const bytes = omitted(value);
  if (bytes !== null) return <p class="faint">{bytes.toLocaleString("en")} bytes; go back to now to see them.</p>;
  return <JsonView value={value} label={label} />;
}

/** The parameters as they were written, and with their templates filled in. */
export function Parameters({ written, resolved }: { written: Json; resolved: Json | undefined }) {
  const isSame = resolved === undefined || print(written) === print(resolved);
  const [isResolved, setResolved] = useState(true);
  if (!hasSomething(written) && !hasSomething(resolved)) return null;
  return (
    <Section title="Parameters">
      {!isSame && (
        <div class="switch" role="group" aria-label="Parameters">
          <button type="button" aria-pressed={isResolved} onClick={() => setResolved(true)}>
            Filled in
          </button>
          <button type="button" aria-pressed={!isResolved} onClick={() => setResolved(false)}>
            As written
          </button>
        </div>
      )}
      <Whole value={isResolved && resolved !== undefined ? resolved : written} label="parameters" />
    </Section>
  );
}

/** The way to the plan, where what is wrong with it is corrected. */
export function EditPlan({ planId }: { planId: string }) {
  return (
    <a class="button" href={`/plans/${planId}`}>
      <Icon name="fork" />
      Edit plan
    </a>
  );
}

function Why({ view }: { view: StepView }) {
  const reasons: Record<string, string> = {
    condition: "Its condition does not hold.",
    dependency: "A step that it depends on did not succeed.",
    execution_failed: "The execution failed before it began.",
    dry_run: "Nothing is called in a dry run.",
  };
  const asked = asksOf(view);
  if (view.items && asked) {
    const n = itemsIn(view.items, "WAITING").toLocaleString("en");
    const what = asked.kind === "signal" ? `the signal “${plain(asked.name ?? "")}”` : asked.kind === "decision" ? "a person to say whether to try again" : "a person to agree";
    return (
      <p class="why">
        {n} of its {view.items.total.toLocaleString("en")} items wait for {what}.
      </p>
    );
  }
  if (view.state === "SKIPPED") return <p class="why">{reasons[view.skipReason ?? ""] ?? view.skipReason}</p>;
  if (view.state === "WAITING" && view.waitsFor === "approval") return <p class="why">It waits for an approval.</p>;
  if (view.state === "WAITING" && view.waitsFor === "decision") return <p class="why">It failed, and waits for a person to say whether to try again.</p>;
  if (view.state === "WAITING" && view.waitName) return <p class="why">It waits for the signal “{view.waitName}”.</p>;
  if (view.state === "RETRYING" && view.until) return <p class="why">The next attempt begins at {clock(view.until)}.</p>;
  return null;
}

/** What a step asks somebody for; a loop, what the first of its items does. */
function asksOf(view: StepView): { kind: string; name: string | null } | null {
  if (view.waitsFor) return { kind: view.waitsFor, name: view.waitName };
  if (!view.items || itemsIn(view.items, "WAITING") === 0) return null;
  for (const it of view.items.each.values()) if (it.state === "WAITING") return { kind: it.waitsFor ?? "", name: it.waitName };
  return null;
}

function StepActions({ story, view, isPast, onAsk }: { story: Story; view: StepView; isPast: boolean; onAsk: (it: Asking) => void }) {
  if (isPast) return null;
  const isOver = story.live.isOver;
  const asked = isOver ? null : asksOf(view);
  const all = asked && view.items ? " all that wait" : "";
  return (
    <>
      {asked && (asked.kind === "approval" || asked.kind === "decision") && (
        <>
          <button type="button" class="primary" onClick={() => onAsk({ kind: "approve", step: view.id })}>
            <Icon name="check" />
            {asked.kind === "decision" ? "Try again" : "Approve"}
            {all}
          </button>
          <button type="button" class="danger" onClick={() => onAsk({ kind: "reject", step: view.id })}>
            <Icon name="close" />
            Reject{all}
          </button>
        </>
      )}
      {asked?.kind === "signal" && (
        <button type="button" class="primary" onClick={() => onAsk({ kind: "signal", name: asked.name ?? "" })}>
          <Icon name="signal" />
          Signal
        </button>
      )}
      {isOver && (
        <button type="button" onClick={() => onAsk({ kind: "retry", mode: "FROM_STEP", step: view.id })}>
          <Icon name="retry" />
          Retry from here
        </button>
      )}
    </>
  );
}

/** The most attempts that are listed. */
const ATTEMPTS = 50;

function Attempts({ view, now, node }: { view: StepView; now: number; node: string | null }) {
  const words: Record<string, string> = { running: WORD.RUNNING, succeeded: WORD.SUCCEEDED, failed: WORD.FAILED, interrupted: "Interrupted", cancelled: WORD.CANCELLED };
  const tries = view.tries.filter((it) => it.index === null).slice(-ATTEMPTS);
  if (tries.length === 0) return null;
  return (
    <Section title="Attempts">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">No.</th>
            <th scope="col">Began</th>
            <th scope="col">Duration</th>
            <th scope="col">Ended</th>
          </tr>
        </thead>
        <tbody>
          {tries.map((it, at) => (
            <tr key={at}>
              <td>{it.isUndo ? "compensation" : it.number}</td>
              <td class="mono">{clock(new Date(it.from).toISOString())}</td>
              <td>{span((it.to ?? now) - it.from)}</td>
              <td>
                {words[it.end]}
                {it.error && <code> {it.error.code}</code>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {node && <p class="faint">Node {node}.</p>}
    </Section>
  );
}

/** What the plan says about the step. */
export function Rules({ step, onSelect }: { step: Step; onSelect: (id: string) => void }) {
  const retry = step.retry as Record<string, Json> | null;
  const rules: [string, ComponentChildren][] = [
    ["After", step.dependsOn.length > 0 && step.dependsOn.slice(0, 40).map((it) => <StepLink key={it} id={it} onSelect={onSelect} />)],
    ["When", step.when && <code>{step.when}</code>],
    ["For each", step.forEach && <code>{step.forEach}</code>],
    ["Effect", step.effect.toLowerCase()],
    ["On error", step.onError !== "fail" && step.onError],
    ["Attempts", retry && Number(retry.maxAttempts) > 1 && `at most ${retry.maxAttempts}`],
    ["Time", step.timeoutMs !== null && `at most ${span(step.timeoutMs)}`],
    ["Approval", step.requiresApproval && "needed"],
    ["Cached", step.cacheTtlMs !== null && `for ${span(step.cacheTtlMs)}`],
    ["Fills", step.outputMapping && <code>{Object.values(step.outputMapping as Record<string, Json>).join(", ")}</code>],
  ];
  return (
    <Section title="In the plan">
      <dl class="rules">
        {rules.map(
          ([name, value]) =>
            value && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ),
        )}
      </dl>
    </Section>
  );
}

function StepLink({ id, onSelect }: { id: string; onSelect: (id: string) => void }) {
  return (
    <button type="button" class="link mono" onClick={() => onSelect(id)}>
      {id}
    </button>
  );
}
