/** The dialog that runs an ended execution again with changes. */

import { useEffect, useState } from "preact/hooks";

import { ask, useAsk, type ApiError } from "../api/client";
import { ForkExecution, ForkPreview, PlanSteps, PlanVersions, StepOutput, type ForkPreviewResult, type Json, type StepChangeInput } from "../api/generated";
import { parse, print } from "../api/json";
import { go } from "../router";
import { Dialog } from "../ui/dialog";
import { Refused, toApiError } from "../ui/fault";
import { Icon } from "../ui/icons";
import { countText } from "../ui/words";
import type { Story } from "./story";

type Preview = NonNullable<ForkPreviewResult["execution"]>["forkPreview"];
type Kind = "parameters" | "output";

/** A change of a step, as the user types it. */
interface Change {
  stepId: string;
  kind: Kind;
  text: string;
}

/** The arguments of a fork, and the texts that are not valid JSON yet. */
interface Order {
  planId: string | null;
  input: Json;
  set: StepChangeInput[];
  mistakes: string[];
}

/** Delay between the last key press and the query for the preview, in milliseconds. */
const PREVIEW_DELAY = 300;
/** Maximum number of steps and calls that are listed. */
const MAX_LISTED = 30;

export function Fork({ story, onClose }: { story: Story; onClose: () => void }) {
  const { executionId: id, planId: ownPlan, requestId, input } = story.about;
  const [planId, setPlan] = useState(ownPlan);
  const written = input === null ? "" : print(input, 2);
  const [inputText, setInputText] = useState(written);
  const [changes, setChanges] = useState<readonly Change[]>([]);
  const versions = useAsk(PlanVersions, { id: requestId }).data?.request?.plans ?? [];
  const steps = useStepsOf(story, planId);
  const order = readOrder(planId === ownPlan ? null : planId, inputText === written ? null : inputText, changes);
  const preview = usePreview(id, order);
  const calls = preview.found?.onceCalls ?? [];
  const choosePlan = (next: string) => {
    setPlan(next);
    // Another version can have other steps.
    setChanges([]);
  };
  const fork = async () => {
    const { mistakes: _, ...wanted } = order;
    go(`/executions/${(await ask(ForkExecution, { id, ...wanted })).forkExecution.executionId}`);
  };
  return (
    <Dialog title="Fork this execution?" action="Fork" {...(calls.length > 0 ? { tone: "bad" as const } : {})} isReady={preview.found !== null} onClose={onClose} onDo={fork} isWide>
      <p>A new execution with changes. It keeps the outputs of the steps that the changes do not touch.</p>
      {versions.length > 1 && (
        <label class="field">
          <span>Version of the plan</span>
          <select value={planId} onChange={(event) => choosePlan(event.currentTarget.value)}>
            {versions.map((plan) => (
              <option key={plan.planId} value={plan.planId}>
                version {plan.version}
                {plan.planId === ownPlan ? ", of this execution" : ""}
              </option>
            ))}
          </select>
        </label>
      )}
      <JsonField label="Input (JSON)" text={inputText} onText={setInputText} />
      <Changes story={story} steps={steps} changes={changes} onChanges={setChanges} />
      {order.mistakes.map((mistake) => (
        <p key={mistake} class="problem" role="alert">
          {mistake}
        </p>
      ))}
      {preview.error && <Refused error={preview.error} />}
      <Effects preview={preview.found} total={steps.length} />
    </Dialog>
  );
}

/** Returns the steps of a version of the plan with their parameters. */
function useStepsOf(story: Story, planId: string): readonly { stepId: string; parameters: Json }[] {
  const isOwn = planId === story.about.planId;
  const asked = useAsk(PlanSteps, isOwn ? null : { id: planId });
  if (isOwn) return story.about.plan.tools;
  return asked.isCurrent ? (asked.data?.plan?.tools ?? []) : [];
}

function readOrder(planId: string | null, input: string | null, changes: readonly Change[]): Order {
  const mistakes: string[] = [];
  const read = (name: string, text: string): Json => {
    try {
      return parse(text);
    } catch (error) {
      mistakes.push(`${name}: ${toApiError(error).message}`);
      return null;
    }
  };
  return {
    planId,
    input: input === null || input.trim() === "" ? null : read("Input", input),
    set: changes.map(({ stepId, kind, text }) => ({ stepId, [kind]: read(`The ${kind} of ${stepId}`, text) })),
    mistakes,
  };
}

/** Asks for the preview after the user has stopped typing. `found` is null until the preview of these changes is known. */
function usePreview(id: string, { mistakes, ...order }: Order): { found: Preview | null; error: ApiError | null } {
  const key = print(order as unknown as Json);
  const [rested, setRested] = useState({ key, order });
  useEffect(() => {
    if (key === rested.key) return;
    const timer = setTimeout(() => setRested({ key, order }), PREVIEW_DELAY);
    return () => clearTimeout(timer);
  }, [key]);
  const asked = useAsk(ForkPreview, mistakes.length > 0 ? null : { id, ...rested.order });
  const isCurrent = mistakes.length === 0 && rested.key === key && asked.isCurrent && asked.error === null;
  return { found: isCurrent ? (asked.data?.execution?.forkPreview ?? null) : null, error: mistakes.length > 0 || rested.key !== key || asked.isLoading ? null : asked.error };
}

interface ChangesProps {
  story: Story;
  steps: readonly { stepId: string; parameters: Json }[];
  changes: readonly Change[];
  onChanges: (changes: readonly Change[]) => void;
}

function Changes({ story, steps, changes, onChanges }: ChangesProps) {
  const [error, setError] = useState<ApiError | null>(null);
  const free = steps.filter(({ stepId }) => changes.every((change) => change.stepId !== stepId));
  const put = (at: number, change: Change) => onChanges(changes.map((old, n) => (n === at ? change : old)));
  const choose = async (at: number, stepId: string, kind: Kind) => {
    setError(null);
    try {
      const parameters = steps.find((step) => step.stepId === stepId)?.parameters ?? {};
      const value = kind === "parameters" ? parameters : ((await ask(StepOutput, { id: story.about.executionId, stepId })).execution?.step?.output ?? null);
      const change = { stepId, kind, text: print(value, 2) };
      if (at === changes.length) onChanges([...changes, change]);
      else put(at, change);
    } catch (error) {
      setError(toApiError(error));
    }
  };
  return (
    <>
      {changes.map((change, at) => (
        <fieldset key={change.stepId} class="fork-change">
          <legend>
            Step <code>{change.stepId}</code>
          </legend>
          <div class="fork-change-head">
            <div class="switch" role="group" aria-label={`Change of ${change.stepId}`}>
              <button type="button" aria-pressed={change.kind === "parameters"} onClick={() => void choose(at, change.stepId, "parameters")}>
                Parameters
              </button>
              <button type="button" aria-pressed={change.kind === "output"} onClick={() => void choose(at, change.stepId, "output")}>
                Output, without a call
              </button>
            </div>
            <span class="grow" />
            <button type="button" class="ghost icon-only" aria-label={`Remove the change of ${change.stepId}`} onClick={() => onChanges(changes.filter((_, n) => n !== at))}>
              <Icon name="close" />
            </button>
          </div>
          <JsonField label={`${change.kind === "output" ? "Output" : "Parameters"} of ${change.stepId} (JSON)`} text={change.text} onText={(text) => put(at, { ...change, text })} />
        </fieldset>
      ))}
      {error && <Refused error={error} />}
      {free.length > 0 && (
        <label class="field">
          <span>Change a step</span>
          <select value="" onChange={(event) => event.currentTarget.value !== "" && void choose(changes.length, event.currentTarget.value, "parameters")}>
            <option value="">choose a step</option>
            {free.map(({ stepId }) => (
              <option key={stepId} value={stepId}>
                {stepId}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

function JsonField({ label, text, onText }: { label: string; text: string; onText: (text: string) => void }) {
  return (
    <label class="field">
      <span>{label}</span>
      <textarea class="mono" rows={Math.min(10, Math.max(2, text.split("\n").length))} spellcheck={false} value={text} onInput={(event) => onText(event.currentTarget.value)} />
    </label>
  );
}

/** Lists the steps whose outputs are kept, and the calls with effects. */
function Effects({ preview, total }: { preview: Preview | null; total: number }) {
  if (!preview) return <p class="faint" role="status">Checking the changes…</p>;
  const { keptSteps: kept, onceCalls: calls } = preview;
  return (
    <>
      <p role="status">
        {kept.length === 0 ? "No output is kept." : kept.length === total ? "The outputs of all steps are kept." : `The outputs of ${countText(kept.length, "step")} are kept:`}
      </p>
      {kept.length > 0 && kept.length < total && (
        <ul class="names" aria-label="Kept steps">
          {kept.slice(0, MAX_LISTED).map((stepId) => (
            <li key={stepId} class="mono">
              {stepId}
            </li>
          ))}
          {kept.length > MAX_LISTED && <li>and {kept.length - MAX_LISTED} more</li>}
        </ul>
      )}
      {calls.length > 0 && (
        <section class="repeated" aria-label="Calls that are made">
          <p>
            <strong>These calls have effects, and are made if their steps run:</strong>
          </p>
          <ul>
            {calls.slice(0, MAX_LISTED).map((call) => (
              <li key={`${call.stepId} ${call.toolName} ${call.outcomeUnknown}`}>
                <code>{call.stepId}</code>: {call.calls === null ? "calls" : countText(call.calls, "call")} of <code>{call.toolName}</code>
                {call.outcomeUnknown ? ", and it is unknown whether earlier calls took effect" : call.repeated ? ", made before" : ""}
              </li>
            ))}
            {calls.length > MAX_LISTED && <li>and {calls.length - MAX_LISTED} more</li>}
          </ul>
        </section>
      )}
    </>
  );
}
