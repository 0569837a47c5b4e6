/** The dialog that applies an action to many executions. */

import { useMemo, useState } from "preact/hooks";

import { ask, useAsk, ApiError } from "../api/client";
import { BulkControl, BulkCount, BulkEffects, type BulkAction, type ExecutionFilter, type ExecutionState } from "../api/generated";
import type { RepeatedCall } from "../execution/repeated";
import { OPEN_STATES, STATES } from "../lists/filter";
import { Dialog } from "../ui/dialog";
import { Refused } from "../ui/fault";
import { formatDuration } from "../ui/time";
import { countText } from "../ui/words";

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
  const wanted = useMemo(() => changeableBy(action, filter), [action, filter]);
  const effects = useAsk(BulkEffects, action === "RETRY" ? { filter: wanted } : null);
  const count = useAsk(BulkCount, action === "RETRY" ? null : { filter: wanted });
  const total = effects.data?.executions.totalCount ?? count.data?.executions.totalCount ?? null;
  const error = effects.error ?? count.error;
  const [rate, setRate] = useState("");
  const [done, setDone] = useState<number | null>(null);
  const [isBusy, setBusy] = useState(false);
  const apply = async () => {
    setBusy(true);
    try {
      const { bulkControl } = await ask(BulkControl, { filter: wanted, action, perSecond: readRate(rate) });
      setDone(bulkControl);
    } finally {
      setBusy(false);
    }
    onDone?.();
    return "stay" as const;
  };
  if (done !== null) return <Result key="result" text={`${countText(done, "execution")} ${done === 1 ? "was" : "were"} ${words.done}.`} isRetry={action === "RETRY"} onClose={onClose} />;
  const calls = effects.data?.executions.nodes.flatMap((run) => run.repeatedCalls) ?? [];
  return (
    <Dialog
      key="question"
      title={total === null ? `${words.verb} executions?` : `${words.verb} ${countText(total, "execution")}?`}
      action={isBusy ? "Working…" : words.verb}
      {...(action === "CANCEL" || calls.length > 0 ? { tone: "bad" as const } : {})}
      isReady={total !== null && total > 0}
      onClose={onClose}
      onDo={apply}
    >
      <p>{words.about}</p>
      {total === 0 && <p>The action changes none of these executions.</p>}
      {error && <Refused error={error} />}
      <EffectList calls={calls} read={effects.data?.executions.nodes.length ?? 0} total={total ?? 0} />
      <RateField rate={rate} total={total ?? 0} onRate={setRate} />
      {isBusy && action !== "RETRY" && <Progress filter={wanted} total={total ?? 0} />}
    </Dialog>
  );
}

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
  const byTool = new Map<string, { calls: number; isUnknown: boolean }>();
  for (const { toolName, calls: count, outcomeUnknown } of calls) {
    const known = byTool.get(toolName) ?? { calls: 0, isUnknown: false };
    byTool.set(toolName, { calls: known.calls + count, isUnknown: known.isUnknown || outcomeUnknown });
  }
  return (
    <section class="repeated" aria-label="Calls that are repeated">
      <p>
        <strong>These calls have effects, and are made again{read < total ? ` (the ${read} newest executions only)` : ""}:</strong>
      </p>
      <ul>
        {[...byTool].map(([tool, { calls: count, isUnknown }]) => (
          <li key={tool}>
            {countText(count, "call")} of <code>{tool}</code>
            {isUnknown && ", some with an unknown outcome: these executions are left out"}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Shows how many executions the running action has changed. */
function Progress({ filter, total }: { filter: ExecutionFilter; total: number }) {
  const left = useAsk(BulkCount, { filter }, 500).data?.executions.totalCount ?? total;
  const changed = Math.max(0, total - left);
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
