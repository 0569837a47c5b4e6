/** What can be done to an execution. Whatever cannot be taken back asks first. */

import { useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import {
  ApproveStep,
  CancelExecution,
  ExecutePlan,
  PauseExecution,
  ResumeExecution,
  RetryExecution,
  SignalExecution,
  type ExecutionOptions,
  type Json,
} from "../api/generated";
import { isFields, parse } from "../api/json";
import { go } from "../router";
import { Dialog } from "../ui/dialog";
import { asRefusal } from "../ui/fault";
import { Icon } from "../ui/icons";
import { againFrom } from "./paths";
import type { Story } from "./story";

/** What somebody is about to do. */
export type Asking =
  | { kind: "cancel" }
  | { kind: "again" }
  | { kind: "retry"; step?: string }
  | { kind: "approve"; step: string }
  | { kind: "reject"; step: string }
  | { kind: "signal"; name: string };

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
      onFail(asRefusal(error));
    } finally {
      setBusy(false);
    }
  };
  if (story.live.isOver) {
    return (
      <div class="buttons">
        {state !== "COMPLETED" && (
          <button type="button" onClick={() => onAsk({ kind: "retry" })}>
            <Icon name="retry" />
            Retry
          </button>
        )}
        <button type="button" onClick={() => onAsk({ kind: "again" })}>
          <Icon name="play" />
          Run again
        </button>
      </div>
    );
  }
  return (
    <div class="buttons">
      {state === "PAUSED" ? (
        <button type="button" class="primary" disabled={isBusy} onClick={() => at(ask(ResumeExecution, { id }))}>
          <Icon name="play" />
          Resume
        </button>
      ) : (
        <button type="button" disabled={isBusy} onClick={() => at(ask(PauseExecution, { id }))}>
          <Icon name="pause" />
          Pause
        </button>
      )}
      <button type="button" onClick={() => onAsk({ kind: "signal", name: "" })}>
        <Icon name="signal" />
        Signal
      </button>
      <button type="button" class="danger" onClick={() => onAsk({ kind: "cancel" })}>
        <Icon name="stop" />
        Cancel
      </button>
    </div>
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
  const open = (executionId: string) => go(`/executions/${executionId}`);
  switch (asking.kind) {
    case "cancel":
      return (
        <Dialog title="Cancel this execution?" action="Cancel it" tone="bad" onClose={onClose} onDo={async () => void (await ask(CancelExecution, { id, reason: text || null }))}>
          <p>Running steps are told and then cut off. What they did stays done{story.about.compensateOnFailure ? ", until it is undone" : ""}.</p>
          <Field label="Why (optional)" value={text} onInput={setText} />
        </Dialog>
      );
    case "again":
      return (
        <Dialog
          title="Run the plan again?"
          action="Run it"
          onClose={onClose}
          onDo={async () => {
            const options = optionsOf(story);
            open((await ask(ExecutePlan, { id: story.about.planId, options })).executePlan.executionId);
          }}
        >
          <p>All {story.ids.length} steps are done anew, in an execution of their own, with the same input.</p>
        </Dialog>
      );
    case "retry":
      return (
        <Dialog
          title={asking.step ? `Retry from “${asking.step}”?` : "Retry this execution?"}
          action="Retry"
          onClose={onClose}
          onDo={async () => open((await ask(RetryExecution, { id, fromStep: asking.step ?? null })).retryExecution.executionId)}
        >
          {asking.step ? <Again story={story} from={asking.step} /> : <p>All of it is done again, as a new execution.</p>}
        </Dialog>
      );
    case "approve":
    case "reject":
      return (
        <Dialog
          title={asking.kind === "approve" ? `Let “${asking.step}” go on?` : `Refuse “${asking.step}”?`}
          action={asking.kind === "approve" ? "Let it go on" : "Refuse it"}
          {...(asking.kind === "reject" ? { tone: "bad" as const } : {})}
          onClose={onClose}
          onDo={async () =>
            void (await ask(ApproveStep, { id, stepId: asking.step, approved: asking.kind === "approve", comment: text || null }))
          }
        >
          {asking.kind === "reject" && <p>The step fails, and with it what its plan says.</p>}
          <Field label="Comment (optional)" value={text} onInput={setText} />
        </Dialog>
      );
    case "signal":
      return <Signal id={id} name={asking.name} onClose={onClose} />;
  }
}

/** What an execution was told, to be told again. */
function optionsOf(story: Story): ExecutionOptions {
  const { mode, input, dryRun, compensateOnFailure, priority } = story.about;
  const first = story.events[0]?.data;
  const said = isFields(first) ? first : {};
  const number = (it: Json | undefined) => (typeof it === "number" ? it : null);
  return {
    mode,
    // As it was written: no digit of it is lost on the way.
    input,
    dryRun,
    compensateOnFailure,
    priority,
    maxParallel: number(said.maxParallel),
    deadlineMs: number(said.deadlineMs),
    strictTemplates: said.strictTemplates === true,
  };
}

/** The most steps that are named. */
const NAMED = 30;

/** What is done again, and of it what has an effect each time. */
function Again({ story, from }: { story: Story; from: string }) {
  const again = againFrom(story.live, story.dependsOn, from);
  const kept = story.ids.length - again.length;
  const once = again.filter((it) => story.stepOf.get(it)?.effect === "ONCE" && story.live.step(it)?.state === "SUCCEEDED");
  return (
    <>
      <p>
        {kept === 0 ? "All steps are done again:" : `The outputs of ${kept} ${kept === 1 ? "step" : "steps"} are taken over. ${again.length} ${again.length === 1 ? "is" : "are"} done again:`}
      </p>
      <ul class="names" aria-label="What is done again">
        {again.slice(0, NAMED).map((it) => (
          <li key={it} class="mono">
            {it}
          </li>
        ))}
        {again.length > NAMED && <li>and {again.length - NAMED} more</li>}
      </ul>
      {once.length > 0 && (
        <p class="warning">
          {once.length === 1 ? `“${once[0]}” has` : `${once.length} of them have`} succeeded before, and {once.length === 1 ? "does" : "do"} something new each time.
        </p>
      )}
    </>
  );
}

function Signal({ id, name: given, onClose }: { id: string; name: string; onClose: () => void }) {
  const [name, setName] = useState(given);
  const [payload, setPayload] = useState("");
  const send = async () => {
    const value = payload.trim() === "" ? null : parse(payload);
    await ask(SignalExecution, { id, name, payload: value });
  };
  return (
    <Dialog title="Send a signal" action="Send" onClose={onClose} onDo={send}>
      <Field label="Name" value={name} onInput={setName} required />
      <Field label="What it brings, as JSON (optional)" value={payload} onInput={setPayload} mono />
    </Dialog>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  required?: boolean;
  mono?: boolean;
}

export function Field({ label, value, onInput, required, mono }: FieldProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <input type="text" class={mono ? "mono" : ""} value={value} required={required} onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}
