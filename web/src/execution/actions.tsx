/** The actions on an execution. Actions that cannot be undone ask for confirmation. */

import { useRef, useState } from "preact/hooks";

import { ask, useAsk, type ApiError } from "../api/client";
import {
  ApproveStep,
  CancelExecution,
  ExecutePlan,
  PauseExecution,
  RepeatedCalls,
  ResumeExecution,
  RetryExecution,
  SettledSteps,
  SettleStep,
  SignalExecution,
  UndoCalls,
  type ExecutionOptions,
  type Json,
  type RetryMode,
  type SettledOutcome,
} from "../api/generated";
import { isFields, parse } from "../api/json";
import { go } from "../router";
import { ActButton } from "../ui/act-button";
import { Dialog } from "../ui/dialog";
import { toApiError, Refused } from "../ui/fault";
import { Field } from "../ui/field";
import { Icon } from "../ui/icons";
import { countText } from "../ui/words";
import { Call } from "./call";
import { askedCall, placeOf } from "./findings";
import { Fork } from "./fork";
import { stepsToRepeatFrom, stepsToRepeatAfterFailure, hasUnknown } from "./paths";
import { RepeatedList } from "./repeated";
import type { Story } from "./story";
import { UndoList } from "./undo";

/** The action that the open dialog asks about. */
export type Asking =
  | { kind: "cancel" }
  | { kind: "again" }
  | { kind: "fork" }
  | { kind: "retry"; mode: RetryMode; step?: string }
  | { kind: "approve"; step: string }
  | { kind: "reject"; step: string }
  | { kind: "signal"; name: string }
  | { kind: "settle"; step: string; item: number | null };

interface BarProps {
  story: Story;
  onAsk: (asking: Asking) => void;
  onFail: (error: ApiError) => void;
}

export function Actions({ story, onAsk, onFail }: BarProps) {
  const id = story.about.executionId;
  const state = story.live.state;
  const [isBusy, setBusy] = useState(false);
  const at = async (doing: Promise<unknown>) => {
    setBusy(true);
    try {
      await doing;
    } catch (error) {
      onFail(toApiError(error));
    } finally {
      setBusy(false);
    }
  };
  if (story.live.isOver) {
    return (
      <div class="buttons">
        {(state !== "COMPLETED" || story.live.count("FAILED") > 0) && <RetryMenu onAsk={onAsk} />}
        <ActButton needs="executePlan" onClick={() => onAsk({ kind: "again" })}>
          <Icon name="play" />
          Run again
        </ActButton>
        <ActButton needs="forkExecution" title="Run it again with another input, other parameters or other outputs" onClick={() => onAsk({ kind: "fork" })}>
          <Icon name="fork" />
          Fork…
        </ActButton>
      </div>
    );
  }
  return (
    <div class="buttons">
      {state === "PAUSED" ? (
        <ActButton needs="resumeExecution" class="primary" disabled={isBusy} onClick={() => at(ask(ResumeExecution, { id }))}>
          <Icon name="play" />
          Resume
        </ActButton>
      ) : (
        <ActButton needs="pauseExecution" disabled={isBusy} onClick={() => at(ask(PauseExecution, { id }))}>
          <Icon name="pause" />
          Pause
        </ActButton>
      )}
      <ActButton needs="signalExecution" onClick={() => onAsk({ kind: "signal", name: "" })}>
        <Icon name="signal" />
        Signal
      </ActButton>
      <ActButton needs="cancelExecution" class="danger" onClick={() => onAsk({ kind: "cancel" })}>
        <Icon name="stop" />
        Cancel
      </ActButton>
    </div>
  );
}

/** A button that retries the failed steps, with a menu of the other modes. */
function RetryMenu({ onAsk }: { onAsk: (asking: Asking) => void }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => menu.current?.removeAttribute("open");
  const choose = (mode: RetryMode) => {
    close();
    onAsk({ kind: "retry", mode });
  };
  return (
    <span class="split-button">
      <ActButton needs="retryExecution" onClick={() => onAsk({ kind: "retry", mode: "FAILED" })}>
        <Icon name="retry" />
        Retry failed steps
      </ActButton>
      <details
        ref={menu}
        class="menu"
        onFocusOut={(event) => {
          if (!menu.current?.contains(event.relatedTarget as Node | null)) close();
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || !menu.current?.open) return;
          event.stopPropagation();
          close();
          menu.current.querySelector("summary")?.focus();
        }}
      >
        <summary aria-label="Other ways to retry">
          <Icon name="chevron" />
        </summary>
        <div class="menu-list">
          <ActButton needs="retryExecution" onClick={() => choose("FROM_STEP")}>
            From a step…
          </ActButton>
          <ActButton needs="retryExecution" onClick={() => choose("ALL")}>
            Everything…
          </ActButton>
        </div>
      </details>
    </span>
  );
}

interface QuestionProps {
  story: Story;
  asking: Asking;
  onClose: () => void;
}

export function Question({ story, asking, onClose }: QuestionProps) {
  const id = story.about.executionId;
  const [text, setText] = useState("");
  switch (asking.kind) {
    case "cancel":
      return <Cancel story={story} onClose={onClose} />;
    case "again":
      return <RunAgain story={story} onClose={onClose} />;
    case "fork":
      return <Fork story={story} onClose={onClose} />;
    case "retry":
      return <Retry story={story} mode={asking.mode} step={asking.step ?? null} onClose={onClose} />;
    case "approve":
    case "reject": {
      const call = asking.kind === "approve" ? askedCall(story, asking.step) : null;
      return (
        <Dialog
          title={asking.kind === "approve" ? `Approve “${asking.step}”?` : `Reject “${asking.step}”?`}
          action={asking.kind === "approve" ? "Approve" : "Reject"}
          {...(asking.kind === "reject" ? { tone: "bad" as const } : {})}
          onClose={onClose}
          onDo={async () =>
            void (await ask(ApproveStep, { id, stepId: asking.step, approved: asking.kind === "approve", comment: text || null }))
          }
        >
          {call && <Call {...call} />}
          {asking.kind === "reject" ? <p>The step fails. The plan decides whether the execution fails, too.</p> : <TryAgain story={story} name={asking.step} />}
          <Field label="Comment (optional)" value={text} onInput={setText} />
        </Dialog>
      );
    }
    case "signal":
      return <Signal id={id} name={asking.name} onClose={onClose} />;
    case "settle":
      return <Settle story={story} step={asking.step} item={asking.item} onClose={onClose} />;
  }
}

/** Asks before the execution is cancelled, and lists the compensating calls. */
function Cancel({ story, onClose }: { story: Story; onClose: () => void }) {
  const id = story.about.executionId;
  const [reason, setReason] = useState("");
  const asked = useAsk(UndoCalls, { id });
  const calls = asked.isCurrent ? (asked.data?.execution?.undoCalls ?? []) : [];
  return (
    <Dialog
      title="Cancel this execution?"
      action="Cancel it"
      tone="bad"
      isReady={asked.isCurrent || asked.error !== null}
      onClose={onClose}
      onDo={async () => void (await ask(CancelExecution, { id, reason: reason || null }))}
    >
      <p>Running steps are asked to stop, and ended if they do not. Their effects remain{story.about.compensateOnFailure ? " until they are undone" : ""}.</p>
      {asked.error && <Refused error={asked.error} />}
      <UndoList calls={calls} executionId={id} />
      <Field label="Why (optional)" value={reason} onInput={setReason} />
    </Dialog>
  );
}

/** Returns the options that a new execution of the plan takes over. Replans, labels and the start time are left out. */
function optionsOf(story: Story): ExecutionOptions {
  const { mode, input, dryRun, compensateOnFailure, priority } = story.about;
  const first = story.events[0]?.data;
  const said = isFields(first) ? first : {};
  const number = (it: Json | undefined) => (typeof it === "number" ? it : null);
  return {
    mode,
    // The numbers in the input keep all digits.
    input,
    dryRun,
    compensateOnFailure,
    priority,
    maxParallel: number(said.maxParallel),
    deadlineMs: number(said.deadlineMs),
    strictTemplates: typeof said.strictTemplates === "boolean" ? said.strictTemplates : null,
  };
}

/** Maximum number of steps that are listed by name. */
const MAX_NAMED_STEPS = 30;

interface RetryProps {
  story: Story;
  mode: RetryMode;
  /** The first step to run again, if it is known. */
  step: string | null;
  onClose: () => void;
}

const RETRY_TITLES: Record<RetryMode, string> = { FAILED: "Retry the failed steps?", FROM_STEP: "Retry from a step?", ALL: "Retry everything?" };

function Retry({ story, mode, step, onClose }: RetryProps) {
  const id = story.about.executionId;
  const [chosen, setChosen] = useState(() => step ?? stepsToRepeatAfterFailure(story.live)[0] ?? story.ids[0] ?? "");
  const fromStep = mode === "FROM_STEP" ? chosen : null;
  const repeated = useRepeated(story, mode, fromStep);
  const settled = useSettled(story, mode);
  const again = mode === "ALL" ? story.ids : fromStep === null ? stepsToRepeatAfterFailure(story.live, settled.steps) : stepsToRepeatFrom(story.live, story.dependsOn, fromStep);
  return (
    <Dialog
      title={step ? `Retry from “${step}”?` : RETRY_TITLES[mode]}
      action="Retry"
      {...(repeated.isDangerous ? { tone: "bad" as const } : {})}
      isReady={repeated.isKnown && settled.isKnown}
      onClose={onClose}
      onDo={async () => openExecution((await ask(RetryExecution, { id, mode, fromStep })).retryExecution.executionId)}
    >
      {mode === "FROM_STEP" && step === null && (
        <label class="field">
          <span>Step to begin with</span>
          <select value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
            {story.ids.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
      <RepeatedSteps again={again} total={story.ids.length} />
      {repeated.list}
    </Dialog>
  );
}

function RunAgain({ story, onClose }: { story: Story; onClose: () => void }) {
  const repeated = useRepeated(story, "ALL", null);
  return (
    <Dialog
      title="Run the plan again?"
      action="Run"
      {...(repeated.isDangerous ? { tone: "bad" as const } : {})}
      isReady={repeated.isKnown}
      onClose={onClose}
      onDo={async () => {
        const options = optionsOf(story);
        openExecution((await ask(ExecutePlan, { id: story.about.planId, options })).executePlan.executionId);
      }}
    >
      <p>A new execution of {story.ids.length === 1 ? "its step" : `all ${countText(story.ids.length, "step")}`}, with the same input.</p>
      {repeated.list}
    </Dialog>
  );
}

function openExecution(id: string): void {
  go(`/executions/${id}`);
}

/**
 * Returns the calls that another run would repeat. The button of the dialog stays disabled until these calls are known
 * or the query has failed.
 */
function useRepeated(story: Story, mode: RetryMode, fromStep: string | null) {
  const asked = useAsk(RepeatedCalls, { id: story.about.executionId, mode, fromStep });
  const calls = asked.isCurrent ? (asked.data?.execution?.repeatedCalls ?? []) : [];
  const list = (
    <>
      {asked.error && <Refused error={asked.error} />}
      <RepeatedList calls={calls} />
    </>
  );
  return { list, isKnown: asked.isCurrent || asked.error !== null, isDangerous: calls.length > 0 };
}

/** The steps that a person settled as succeeded. A retry of the failed steps reuses their outputs. */
function useSettled(story: Story, mode: RetryMode) {
  const isWanted = mode === "FAILED" && hasUnknown(story.live);
  const asked = useAsk(SettledSteps, isWanted ? { id: story.about.executionId } : null);
  const steps = asked.data?.execution?.steps.filter((step) => step.settled === "SUCCEEDED") ?? [];
  return { steps: new Set(steps.map((step) => step.stepId)), isKnown: !isWanted || asked.isCurrent || asked.error !== null };
}

/** Warns that another attempt of a failed step may repeat the effect of its tool. */
function TryAgain({ story, name }: { story: Story; name: string }) {
  const id = /^[^[]*/.exec(name)![0];
  const step = story.stepOf.get(id);
  const view = story.live.step(id);
  const isAgain = view !== undefined && view.tries.length > 0;
  if (!isAgain || step?.effect !== "ONCE") return null;
  return (
    <section class="repeated" aria-label="Calls that are repeated">
      <p>
        <strong>
          <code>{step.toolName}</code> has an effect, and is called again.
        </strong>
      </p>
    </section>
  );
}

/** Lists the steps that run again. */
function RepeatedSteps({ again, total }: { again: readonly string[]; total: number }) {
  const kept = total - again.length;
  if (again.length === 0) return <p>No step runs again: a new execution reuses the outputs of {total === 1 ? "its step" : `all ${countText(total, "step")}`}.</p>;
  return (
    <>
      <p>
        {kept > 0 && `The outputs of ${countText(kept, "step")} are reused. `}
        {kept === 0 ? "All steps run again, in a new execution:" : `${again.length === 1 ? "1 step runs" : `${again.length.toLocaleString("en")} steps run`} again, in a new execution:`}
      </p>
      <ul class="names" aria-label="What is done again">
        {again.slice(0, MAX_NAMED_STEPS).map((name) => (
          <li key={name} class="mono">
            {name}
          </li>
        ))}
        {again.length > MAX_NAMED_STEPS && <li>and {again.length - MAX_NAMED_STEPS} more</li>}
      </ul>
    </>
  );
}

export function Signal({ id, name: given, onClose }: { id: string; name: string; onClose: () => void }) {
  const [name, setName] = useState(given);
  const [payload, setPayload] = useState("");
  const send = async () => {
    const value = payload.trim() === "" ? null : parse(payload);
    await ask(SignalExecution, { id, name, payload: value });
  };
  return (
    <Dialog title="Send a signal" action="Send" onClose={onClose} onDo={send}>
      <Field label="Name" value={name} onInput={setName} required />
      <Field label="Payload (JSON, optional)" value={payload} onInput={setPayload} mono />
    </Dialog>
  );
}

interface SettleProps {
  story: Story;
  step: string;
  item: number | null;
  onClose: () => void;
}

/** Asks how a call with an unknown outcome ended, and stores the answer. */
function Settle({ story, step, item, onClose }: SettleProps) {
  const id = story.about.executionId;
  const name = placeOf({ stepId: step, index: item });
  const [outcome, setOutcome] = useState<SettledOutcome>("SUCCEEDED");
  const [output, setOutput] = useState("");
  const [comment, setComment] = useState("");
  const call = askedCall(story, name);
  const settle = async () => {
    const given = outcome === "SUCCEEDED" && output.trim() !== "" ? parse(output) : null;
    await ask(SettleStep, { id, stepId: step, item, outcome, output: given, comment: comment || null });
    story.settled.set(story.settled.value + 1);
  };
  const choice = (value: SettledOutcome, label: string, about: string) => (
    <label class="option">
      <input type="radio" name="outcome" checked={outcome === value} onChange={() => setOutcome(value)} />
      <span>
        {label}
        <span class="faint">{about}</span>
      </span>
    </label>
  );
  return (
    <Dialog title={`Did the call of “${name}” take effect?`} action="Settle" onClose={onClose} onDo={settle}>
      <p>The outcome of this call is unknown. Check in the other system if it took effect.</p>
      {call && <Call {...call} />}
      <fieldset class="options">
        <legend class="unseen">Outcome</legend>
        {choice("SUCCEEDED", "It succeeded", story.live.isOver ? "A retry reuses the output, and does not call the tool." : "The step succeeds with this output.")}
        {choice("FAILED", "It failed", story.live.isOver ? "A retry calls the tool again." : "The step fails. The plan decides whether the execution fails, too.")}
      </fieldset>
      {outcome === "SUCCEEDED" && <Field label="Output (JSON, optional)" value={output} onInput={setOutput} mono />}
      <Field label="Comment (optional)" value={comment} onInput={setComment} />
    </Dialog>
  );
}
