/** The attempts of a step, and the differences between the values of two attempts. */

import { useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { OneEvent, type Json } from "../api/generated";
import { isFields, print } from "../api/json";
import { Refused } from "../ui/fault";
import { LineDifference } from "../ui/line-difference";
import { Choice, Loading } from "../ui/page";
import { WORD } from "../ui/state";
import { formatClockTime, formatDuration } from "../ui/time";
import type { StepView } from "./fold";
import { Section } from "./panel";
import type { Story } from "./story";

/** Maximum number of attempts that are listed. */
const MAX_ATTEMPTS = 50;

const END_WORDS: Record<string, string> = { running: WORD.RUNNING, succeeded: WORD.SUCCEEDED, failed: WORD.FAILED, interrupted: "Interrupted", cancelled: WORD.CANCELLED };

interface Props {
  story: Story;
  view: StepView;
  now: number;
}

export function Attempts({ story, view, now }: Props) {
  const node = story.fold.node;
  const tries = view.tries.filter((attempt) => attempt.index === null).slice(-MAX_ATTEMPTS);
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
          {tries.map((attempt, at) => (
            <tr key={at}>
              <td>{attempt.isUndo ? "compensation" : attempt.number}</td>
              <td class="mono">{formatClockTime(new Date(attempt.from).toISOString())}</td>
              <td>{formatDuration((attempt.to ?? now) - attempt.from)}</td>
              <td>
                {END_WORDS[attempt.end]}
                {attempt.code && <code> {attempt.code}</code>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {node && <p class="faint">Node {node}.</p>}
      <AttemptComparison story={story} stepId={view.id} />
    </Section>
  );
}

/** The events that begin and end an attempt. */
interface Spoken {
  number: number;
  start: number;
  end: number | null;
}

/** The events that end an attempt, apart from `step_waiting` after a failure. */
const END_EVENTS: ReadonlySet<string> = new Set(["step_succeeded", "step_failed", "step_retry_scheduled", "step_interrupted", "step_cancelled"]);

/** Returns the attempts of a step without a list, up to the shown position. */
function attemptsOf(story: Story, stepId: string): Spoken[] {
  const found: Spoken[] = [];
  for (const { seq, type, stepId: id, attempt, data } of story.events) {
    if (seq > story.fold.length) break;
    if (id !== stepId || !isFields(data) || data.index !== undefined) continue;
    const last = found.at(-1);
    if (type === "step_started") found.push({ number: attempt ?? found.length + 1, start: seq, end: null });
    else if (last && last.end === null && (END_EVENTS.has(type) || (type === "step_waiting" && data.error !== undefined))) last.end = seq;
  }
  return found;
}

function AttemptComparison({ story, stepId }: { story: Story; stepId: string }) {
  const [isOpen, setOpen] = useState(false);
  const attempts = attemptsOf(story, stepId).slice(-MAX_ATTEMPTS);
  if (attempts.length < 2) return null;
  return (
    <>
      <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        Compare attempts
      </button>
      {isOpen && <Comparison executionId={story.about.executionId} attempts={attempts} />}
    </>
  );
}

function Comparison({ executionId, attempts }: { executionId: string; attempts: readonly Spoken[] }) {
  const [first, setFirst] = useState(attempts.length - 2);
  const [second, setSecond] = useState(attempts.length - 1);
  const before = useValues(executionId, attempts[first]!);
  const after = useValues(executionId, attempts[second]!);
  const options = attempts.map(({ number }, at) => [String(at), `attempt ${number}`] as const);
  const error = before.error ?? after.error;
  return (
    <div class="attempt-comparison">
      <p class="attempt-choice">
        <Choice label="First attempt" value={String(first)} options={options} onChange={(at) => setFirst(Number(at))} />
        and
        <Choice label="Second attempt" value={String(second)} options={options} onChange={(at) => setSecond(Number(at))} />
      </p>
      {error && <Refused error={error} />}
      {!error && (!before.values || !after.values) && <Loading />}
      {before.values && after.values && (print(before.values) === print(after.values) ? <p class="faint">Both have the same parameters and the same result.</p> : <LineDifference before={before.values} after={after.values} />)}
    </div>
  );
}

/** Reads the whole parameters and the whole output or error of an attempt. The events of the page have shortened values. */
function useValues(id: string, { start, end }: Spoken) {
  const began = useAsk(OneEvent, { id, afterSeq: start - 1 });
  const ended = useAsk(OneEvent, end === null ? null : { id, afterSeq: end - 1 });
  const error = began.error ?? ended.error;
  if (!began.isCurrent || (end !== null && !ended.isCurrent)) return { values: null, error };
  const [from, to] = [began, ended].map((asked): Record<string, Json | undefined> => {
    const data = asked.data?.execution?.events[0]?.data;
    return isFields(data) ? data : {};
  });
  const result: Record<string, Json> = { parameters: from!.parameters ?? null };
  if (end !== null && isFields(to!.error)) result.error = { code: to!.error.code ?? null, message: to!.error.message ?? null };
  else if (end !== null) result.output = to!.output ?? null;
  return { values: result as Json, error };
}
