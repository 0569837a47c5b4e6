/** The dialog that applies an action to many executions. */

import { useMemo, useState } from "preact/hooks";

import { ask, useAsk, ApiError } from "../api/client";
import { BulkControl, BulkCount, BulkEffects, type BulkAction, type BulkEffectsResult, type ExecutionFilter, type ExecutionState } from "../api/generated";
import type { RepeatedCall } from "../execution/repeated";
import { OPEN_STATES, STATES } from "../lists/filter";
import { Dialog } from "../ui/dialog";
import { Refused } from "../ui/fault";
import { formatDuration } from "../ui/time";
import { countText } from "../ui/words";
import { findRetriable, useRetriable, type Retriable } from "./retriable";

type EffectRun = BulkEffectsResult["executions"]["nodes"][number];

export const ACTION_WORDS: Record<BulkAction, { verb: string; done: string; about: string }> = {
  CANCEL: { verb: "Cancel", done: "cancelled", about: "Running steps are asked to stop, and ended if they do not. Their effects remain, unless the execution compensates." },
  PAUSE: { verb: "Pause", done: "paused", about: "Running steps finish. No further step starts until somebody resumes the execution." },
  RESUME: { verb: "Resume", done: "resumed", about: "Only paused executions are changed." },
  RETRY: { verb: "Retry", done: "retried", about: "Each execution is retried from its failed steps, as a new execution. Outputs of steps that succeeded are reused." },
};

/** The states in which each action changes an execution. */
const CHANGEABLE: Record<BulkAction, readonly ExecutionState[]> = {
  CANCEL: OPEN_STATES,
  PAUSE: OPEN_STATES.filter((state) => state !== "PAUSED"),
  RESUME: ["PAUSED"],
  RETRY: STATES.filter((state) => !OPEN_STATES.includes(state)),
};

/** Restricts a filter to the executions that the action can change. */
export function changeableBy(action: BulkAction, filter: ExecutionFilter): ExecutionFilter {
  const allowed = CHANGEABLE[action];
  const state = filter.state ? filter.state.filter((one) => allowed.includes(one)) : [...allowed];
  return { ...filter, state };
}

interface Props {
  action: BulkAction;
  filter: ExecutionFilter;
  /** Called after the action, before the dialog closes. */
  onDone?: () => void;
  onClose: () => void;
}

/** Shows how many executions change, and which effects a retry repeats. Then shows the progress. */
export function BulkDialog({ action, filter, onDone, onClose }: Props) {
  const words = ACTION_WORDS[action];
  const isRetry = action === "RETRY";
  const wanted = useMemo(() => changeableBy(action, filter), [action, filter]);
  const retriable = useRetriable(isRetry ? wanted : null);
  const sample = retriable.found && retriable.found.ids.length > 0 ? retriable.found.ids.slice(0, MAX_SAMPLE) : null;
  const effects = useAsk(BulkEffects, sample && { filter: { executionIds: sample } });
  const count = useAsk(BulkCount, isRetry ? null : { filter: wanted });
  const total = isRetry ? (retriable.found?.ids.length ?? null) : (count.data?.executions.totalCount ?? null);
  const error = retriable.error ?? effects.error ?? count.error;
  const [rate, setRate] = useState("");
  const [done, setDone] = useState<number | null>(null);
  const [sent, setSent] = useState(0);
  const [isBusy, setBusy] = useState(false);
  const apply = async () => {
    const perSecond = readRate(rate);
    setBusy(true);
    try {
      if (isRetry) setDone(await retryOnce(wanted, retriable.found!.ids, perSecond, setSent));
      else setDone((await ask(BulkControl, { filter: wanted, action, perSecond })).bulkControl);
    } finally {
      setBusy(false);
    }
    onDone?.();
    return "stay" as const;
  };
  if (done !== null) return <Result key="result" text={`${countText(done, "execution")} ${done === 1 ? "was" : "were"} ${words.done}.`} isRetry={isRetry} onClose={onClose} />;
  const runs = effects.isCurrent ? (effects.data?.executions.nodes ?? []) : [];
  const calls = runs.flatMap((run) => run.repeatedCalls);
  return (
    <Dialog
      key="question"
      title={total === null ? `${words.verb} executions?` : `${words.verb} ${countText(total, "execution")}?`}
      action={isBusy ? "Working…" : words.verb}
      {...(action === "CANCEL" || calls.length > 0 ? { tone: "bad" as const } : {})}
      isReady={total !== null && total > 0 && (!isRetry || effects.isCurrent || effects.error !== null)}
      onClose={onClose}
      onDo={apply}
    >
      <p>{words.about}</p>
      {isRetry && total === null && !error && <p role="status">Searching for executions that were retried before…</p>}
      {retriable.found && <LeftOut {...retriable.found} />}
      {total === 0 && !retriable.found?.retried && <p>The action changes none of these executions.</p>}
      {error && <Refused error={error} />}
      <UnknownList runs={runs} read={runs.length} total={total ?? 0} />
      <EffectList calls={calls.filter((call) => !call.outcomeUnknown)} read={runs.length} total={total ?? 0} />
      <RateField rate={rate} total={total ?? 0} onRate={setRate} />
      {isBusy && (isRetry ? <ProgressBar changed={sent} total={total ?? 0} /> : <Progress filter={wanted} total={total ?? 0} />)}
    </Dialog>
  );
}

/** Number of executions whose repeated calls are read. */
const MAX_SAMPLE = 100;
/** The largest number of ids in a filter. */
const MAX_IDS = 1_000;

/**
 * Retries executions, except for those that somebody has retried since the dialog opened. Returns the number of new
 * executions.
 */
async function retryOnce(filter: ExecutionFilter, shown: readonly string[], perSecond: number | null, onSent: (sent: number) => void): Promise<number> {
  const fresh = new Set((await findRetriable(filter)).ids);
  const ids = shown.filter((id) => fresh.has(id));
  const parts = Math.ceil(ids.length / MAX_IDS);
  let done = 0;
  for (let part = 0; part < parts; part += 1) {
    const executionIds = ids.slice(part * MAX_IDS, (part + 1) * MAX_IDS);
    // The server plans the starts of each part from now, so the parts share the rate.
    const answer = await ask(BulkControl, { filter: { executionIds }, action: "RETRY", perSecond: perSecond === null ? null : perSecond / parts });
    done += answer.bulkControl;
    onSent(Math.min(ids.length, (part + 1) * MAX_IDS));
  }
  return done;
}

/** Shows the numbers of executions that are not retried. */
function LeftOut({ retried, isCut }: Retriable) {
  return (
    <>
      {retried > 0 && <p role="status">{countText(retried, "execution")} {retried === 1 ? "was" : "were"} retried before, and {retried === 1 ? "is" : "are"} left out.</p>}
      {isCut && <p>One action retries the newest executions only. Repeat it for the others.</p>}
    </>
  );
}

/** Lists the executions that the server leaves out because a call of theirs has an unknown outcome. */
function UnknownList({ runs, read, total }: { runs: readonly EffectRun[]; read: number; total: number }) {
  const unknown = runs.flatMap(({ executionId, repeatedCalls }) => repeatedCalls.filter((call) => call.outcomeUnknown).map((call) => ({ executionId, call })));
  if (unknown.length === 0) return null;
  return (
    <section class="repeated" aria-label="Calls with an unknown outcome">
      <p>
        <strong>It is unknown whether these calls took effect{read < total ? ` (the ${read} newest executions only)` : ""}. Their executions are left out until you settle the calls:</strong>
      </p>
      <ul>
        {unknown.slice(0, MAX_LISTED).map(({ executionId, call }) => (
          <li key={`${executionId} ${call.stepId} ${call.toolName}`}>
            <a class="mono" href={`/executions/${executionId}?step=${encodeURIComponent(call.stepId)}`}>
              {executionId}
            </a>
            : <code>{call.stepId}</code>, {countText(call.calls, "call")} of <code>{call.toolName}</code>
          </li>
        ))}
        {unknown.length > MAX_LISTED && <li>and {unknown.length - MAX_LISTED} more</li>}
      </ul>
    </section>
  );
}

/** Maximum number of calls that are listed. */
const MAX_LISTED = 30;

function readRate(text: string): number | null {
  if (text.trim() === "") return null;
  const rate = Number(text);
  if (!(rate > 0)) throw new ApiError("the rate is a number of executions per second, more than 0", "INVALID_ARGUMENT");
  return rate;
}

function RateField({ rate, total, onRate }: { rate: string; total: number; onRate: (rate: string) => void }) {
  const perSecond = Number(rate);
  return (
    <label class="field">
      <span>Executions per second (optional)</span>
      <input type="text" inputMode="decimal" placeholder="no limit" value={rate} onInput={(event) => onRate(event.currentTarget.value)} />
      {perSecond > 0 && total > 1 && <span class="faint">Takes about {formatDuration(((total - 1) / perSecond) * 1_000)}.</span>}
    </label>
  );
}

/** Lists the calls of *once* tools by tool. The server tells the calls of one execution at a time, so only some executions are read. */
function EffectList({ calls, read, total }: { calls: readonly RepeatedCall[]; read: number; total: number }) {
  if (calls.length === 0) return null;
  const byTool = new Map<string, number>();
  for (const { toolName, calls: count } of calls) byTool.set(toolName, (byTool.get(toolName) ?? 0) + count);
  return (
    <section class="repeated" aria-label="Calls that are repeated">
      <p>
        <strong>These calls have effects, and are made again{read < total ? ` (the ${read} newest executions only)` : ""}:</strong>
      </p>
      <ul>
        {[...byTool].map(([tool, count]) => (
          <li key={tool}>
            {countText(count, "call")} of <code>{tool}</code>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Shows how many executions the running action has changed. */
function Progress({ filter, total }: { filter: ExecutionFilter; total: number }) {
  const left = useAsk(BulkCount, { filter }, 500).data?.executions.totalCount ?? total;
  return <ProgressBar changed={Math.max(0, total - left)} total={total} />;
}

function ProgressBar({ changed, total }: { changed: number; total: number }) {
  return (
    <p role="status">
      <progress max={total} value={changed} aria-label="Changed executions" /> {changed.toLocaleString("en")} of {total.toLocaleString("en")}
    </p>
  );
}

function Result({ text, isRetry, onClose }: { text: string; isRetry: boolean; onClose: () => void }) {
  return (
    <Dialog title={text} action="Done" onClose={onClose} onDo={async () => {}}>
      {isRetry && <p>The new executions are the newest ones in the list.</p>}
    </Dialog>
  );
}
