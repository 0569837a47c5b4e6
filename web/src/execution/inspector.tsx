/** The panel with everything about one step: its definition, its calls, and the reasons for its state. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { useCell } from "../api/cell";
import { StepDetail, type Finding, type Json, type SettledOutcome, type StepDetailResult, type StepState } from "../api/generated";
import { print } from "../api/json";
import { ActButton } from "../ui/act-button";
import { Fault, isNotEmpty } from "../ui/fault";
import { Icon } from "../ui/icons";
import { JsonView, omittedBytes } from "../ui/json";
import { Plain } from "../ui/plain";
import { Pill, WORD } from "../ui/state";
import { formatDuration } from "../ui/time";
import { Words } from "../ui/words";
import type { Asking } from "./actions";
import { Attempts } from "./attempts";
import { Call } from "./call";
import { isFailure, errorMessageOf } from "./findings";
import { durationText, type StepView } from "./fold";
import { ItemList, MAX_ITEMS } from "./item-list";
import { itemsIn, finishedItemsText } from "./items";
import { Logs } from "./logs";
import { StepCommands } from "./people";
import { Panel, Section, type Around, type Opening } from "./panel";
import { RemedyCommands } from "./remedies";
import type { Step, Story } from "./story";

export type Detail = NonNullable<NonNullable<StepDetailResult["execution"]>["step"]>;

/** Number of items that are shown at first. Each click adds five times this number. */
const ITEMS_PER_PAGE = 100;
/** Minimum time between two queries about a running loop, in milliseconds. */
const QUERY_INTERVAL = 500;

interface Props {
  story: Story;
  step: Step;
  /** The findings about the step. */
  findings: readonly Finding[];
  view: StepView;
  isPast: boolean;
  now: number;
  opening: Opening | null;
  around: Around | null;
  onAsk: (asking: Asking) => void;
  onSelect: (id: string) => void;
  onClose: () => void;
}

export function Inspector({ story, step, findings, view, isPast, now, opening, around, onAsk, onSelect, onClose }: Props) {
  const id = story.about.executionId;
  // Only the server has whole values. Events in the log contain shortened values.
  const wantsDetail = !isPast && view.state !== "PENDING";
  const [items, setItems] = useState<{ first: number; from: number; states: StepState[] | null }>({ first: ITEMS_PER_PAGE, from: 0, states: null });
  const asked = useAsk(StepDetail, wantsDetail ? { id, stepId: step.stepId, items: items.first, after: items.from > 0 ? items.from - 1 : null, states: items.states } : null);
  const settled = useCell(story.settled);
  const mark = `${view.state} ${view.attempts} ${view.items ? Object.values(view.items.counts).join(" ") : ""} ${view.tries.filter((it) => it.isUndo).length} ${view.isNotUndone} ${settled}`;
  const latest = useRef({ mark, asked: mark, timer: 0 });
  latest.current.mark = mark;
  useEffect(() => {
    const now = latest.current;
    if (now.mark === now.asked || now.timer) return;
    // Items of a loop can change hundreds of times a second. The delay gives each query time to finish.
    const ask = () => {
      now.timer = 0;
      now.asked = now.mark;
      asked.refresh();
    };
    now.timer = setTimeout(ask, view.items ? QUERY_INTERVAL : 0) as unknown as number;
  }, [mark]);
  useEffect(() => () => clearTimeout(latest.current.timer), []);
  const found = asked.data?.execution?.step;
  const detail = wantsDetail && found?.stepId === step.stepId ? found : null;
  const resolved = detail ? (detail.resolvedParameters ?? undefined) : view.parameters;
  const output = detail ? (detail.state === "SUCCEEDED" || isNotEmpty(detail.output) ? detail.output : undefined) : view.output;
  const running = finishedItemsText([view]);
  return (
    <Panel
      name={step.stepId}
      opening={opening}
      around={around}
      onClose={onClose}
      facts={
        <>
          <Pill state={view.state} />
          {view.isNotUndone && <span class="tag tone-bad">not undone</span>}
          {detail?.settled && <span class="tag">settled: {WORD[detail.settled].toLowerCase()}</span>}
          <ToolName step={step} />
          {running && <span>{running}</span>}
          {view.from !== null && <span>{durationText(view, now)}</span>}
          {view.attempts > 1 && <span>{view.attempts} attempts</span>}
          {(detail?.reused ?? view.isReused) && <span>output taken over</span>}
        </>
      }
      actions={<StepActions story={story} view={view} isUnknown={isUnknown(detail)} isPast={isPast} onAsk={onAsk} />}
    >
      <Reasons story={story} findings={findings} error={view.state === "SUCCEEDED" ? null : (detail?.error ?? null)} />
      <Decision detail={detail} name={step.stepId} />
      <StepCommands story={story} stepId={step.stepId} />
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
          <Whole value={output} label={`output of ${step.stepId}`} root={step.stepId} />
        </Section>
      )}
      {detail && (detail.itemTally?.total ?? 0) > 0 && (
        <ItemList
          detail={detail}
          states={items.states}
          from={items.from}
          asked={items.first}
          onStates={(states) => setItems({ first: ITEMS_PER_PAGE, from: 0, states })}
          onFrom={(from) => setItems((old) => ({ ...old, first: ITEMS_PER_PAGE, from }))}
          onMore={() => setItems((old) => ({ ...old, first: Math.min(MAX_ITEMS, old.first + 5 * ITEMS_PER_PAGE) }))}
          onSelect={(index) => onSelect(`${step.stepId}[${index}]`)}
          onAsk={isPast || story.live.isOver ? null : onAsk}
        />
      )}
      {view.lines && <Logs lines={view.lines} index={null} />}
      {view.tries.length > 0 && <Attempts story={story} view={view} now={now} />}
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

/** Shows a value, or its size if an event does not contain it. */
export function Whole({ value, label, root = null }: { value: Json | undefined; label: string; root?: string | null }) {
  const bytes = omittedBytes(value);
  if (bytes !== null) return <p class="faint">{bytes.toLocaleString("en")} bytes; go back to now to see them.</p>;
  return <JsonView value={value} label={label} root={root} />;
}

/** Shows the parameters with their templates, or with the values that replaced them. */
export function Parameters({ written, resolved }: { written: Json; resolved: Json | undefined }) {
  const isSame = resolved === undefined || print(written) === print(resolved);
  const [isResolved, setResolved] = useState(true);
  if (!isNotEmpty(written) && !isNotEmpty(resolved)) return null;
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

/** A link to the plan, where the user can correct it. */
export function EditPlan({ planId, isBest }: { planId: string; isBest?: boolean }) {
  return (
    <a class={isBest ? "button primary" : "button"} href={`/plans/${planId}`}>
      <Icon name="fork" />
      Edit plan
    </a>
  );
}

/** Maximum number of failures that are shown for one step. */
const MAX_FAILURES = 3;

interface ReasonsProps {
  story: Story;
  findings: readonly Finding[];
  /** The last error. After the last attempt, a finding shows the cause of this error instead. */
  error: { code: string; message: string; retryable: boolean } | null;
}

/** Shows why the step failed, waits or was skipped, and its other findings. */
export function Reasons({ story, findings, error }: ReasonsProps) {
  const { executionId, planId } = story.about;
  const failures = findings.filter(isFailure);
  const note = error?.retryable ? "retryable" : "";
  return (
    <>
      {failures.slice(0, MAX_FAILURES).map((finding) => {
        const isLast = error !== null && finding.index === null && error.code === finding.code;
        return (
          <Section title="Error" key={`${finding.code} ${finding.index} ${finding.causeSeq}`}>
            <Fault
              code={finding.code}
              cause={finding.message}
              message={(isLast ? error.message : errorMessageOf(story, finding)) ?? finding.message}
              note={isLast ? note : ""}
              actions={<EditPlan planId={planId} />}
            >
              <RemedyCommands finding={finding} executionId={executionId} />
            </Fault>
          </Section>
        );
      })}
      {failures.length > MAX_FAILURES && <p class="faint">and {failures.length - MAX_FAILURES} more</p>}
      {failures.length === 0 && error && (
        <Section title="Error">
          <Fault code={error.code} message={error.message} note={note} actions={<EditPlan planId={planId} />} />
        </Section>
      )}
      {findings
        .filter((finding) => !isFailure(finding))
        .slice(0, MAX_OTHER_FINDINGS)
        .map((finding) => (
          <p key={`${finding.code} ${finding.index} ${finding.message}`} class={finding.kind === "WARNING" ? "warning" : "why"}>
            <Words text={finding.message} />
          </p>
        ))}
    </>
  );
}

/** Maximum number of other findings that are shown for one step. */
const MAX_OTHER_FINDINGS = 8;

/** Returns whether a call has an unknown outcome that no person has settled. */
export function isUnknown(detail: { error: { code: string } | null; settled: SettledOutcome | null } | null | undefined): boolean {
  return detail?.error?.code === "tool.outcome_unknown" && detail.settled === null;
}

/** Returns what kind of answer a step waits for, and the name of the signal. For a loop, describes its first waiting item. */
function findQuestion(view: StepView): { kind: string; name: string | null } | null {
  if (view.waitsFor) return { kind: view.waitsFor, name: view.waitName };
  if (!view.items || itemsIn(view.items, "WAITING") === 0) return null;
  for (const it of view.items.each.values()) if (it.state === "WAITING") return { kind: it.waitsFor ?? "", name: it.waitName };
  return null;
}

interface ActionsProps {
  story: Story;
  view: StepView;
  isUnknown: boolean;
  isPast: boolean;
  onAsk: (asking: Asking) => void;
}

function StepActions({ story, view, isUnknown, isPast, onAsk }: ActionsProps) {
  if (isPast) return null;
  const isOver = story.live.isOver;
  const asked = isOver ? null : findQuestion(view);
  const all = asked && view.items ? " all that wait" : "";
  const canSettle = isUnknown && !view.items;
  return (
    <>
      {canSettle && <SettleButton step={view.id} item={null} onAsk={onAsk} />}
      {asked && (asked.kind === "approval" || asked.kind === "decision") && (
        <>
          <ActButton needs="approveStep" class={canSettle ? "danger" : "primary"} onClick={() => onAsk({ kind: "approve", step: view.id })}>
            <Icon name={asked.kind === "decision" ? "retry" : "check"} />
            {asked.kind === "decision" ? "Try again" : "Approve"}
            {all}
          </ActButton>
          <ActButton needs="approveStep" class="danger" onClick={() => onAsk({ kind: "reject", step: view.id })}>
            <Icon name="close" />
            Reject{all}
          </ActButton>
        </>
      )}
      {asked?.kind === "signal" && (
        <ActButton needs="signalExecution" class="primary" onClick={() => onAsk({ kind: "signal", name: asked.name ?? "" })}>
          <Icon name="signal" />
          Signal
        </ActButton>
      )}
      {isOver && (
        <ActButton needs="retryExecution" onClick={() => onAsk({ kind: "retry", mode: "FROM_STEP", step: view.id })}>
          <Icon name="retry" />
          Retry from here
        </ActButton>
      )}
    </>
  );
}

interface Settled {
  settled: SettledOutcome | null;
  settledOutput: Json;
  settledComment: string | null;
  missingCompensation: { toolName: string; parameters: Json } | null;
}

/** Shows how a person settled a call, and what the person must still do. */
export function Decision({ detail, name }: { detail: Settled | null | undefined; name: string }) {
  if (!detail || detail.settled === null) return null;
  return (
    <Section title="Settled">
      <Pill state={detail.settled} />
      {detail.settledComment && (
        <p>
          <Plain text={detail.settledComment} />
        </p>
      )}
      {detail.settled === "SUCCEEDED" && <JsonView value={detail.settledOutput} label={`settled output of ${name}`} open={1} />}
      {detail.missingCompensation && (
        <div class="warning">
          <p>The call that compensates it was not made:</p>
          <Call {...detail.missingCompensation} />
        </div>
      )}
    </Section>
  );
}

/** A button that opens the dialog to settle a call. */
export function SettleButton({ step, item, onAsk }: { step: string; item: number | null; onAsk: (asking: Asking) => void }) {
  return (
    <ActButton needs="settleStep" class="primary" onClick={() => onAsk({ kind: "settle", step, item })}>
      <Icon name="check" />
      Settle…
    </ActButton>
  );
}

/** Shows the step's definition in the plan. */
export function Rules({ step, onSelect }: { step: Step; onSelect: (id: string) => void }) {
  const retry = step.retry as Record<string, Json> | null;
  const rules: [string, ComponentChildren][] = [
    ["After", step.dependsOn.length > 0 && step.dependsOn.slice(0, 40).map((it) => <StepLink key={it} id={it} onSelect={onSelect} />)],
    ["When", step.when && <code>{step.when}</code>],
    ["For each", step.forEach && <code>{step.forEach}</code>],
    ["Effect", step.effect.toLowerCase()],
    ["On error", step.onError !== "fail" && step.onError],
    ["Attempts", retry && Number(retry.maxAttempts) > 1 && `at most ${retry.maxAttempts}`],
    ["Time", step.timeoutMs !== null && `at most ${formatDuration(step.timeoutMs)}`],
    ["Approval", step.requiresApproval && "needed"],
    ["Cached", step.cacheTtlMs !== null && `for ${formatDuration(step.cacheTtlMs)}`],
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
