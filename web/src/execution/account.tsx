/** The findings above every view of an execution: reasons, and actions that help. */

import { useEffect, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { ExecutionOnward, type ExecutionState, type Finding } from "../api/generated";
import { Fault } from "../ui/fault";
import { WORD } from "../ui/state";
import { formatDateTime } from "../ui/time";
import { Words } from "../ui/words";
import type { Asking } from "./actions";
import { askedCall, isFailure, needsPerson, ofKind, placeOf, errorMessageOf } from "./findings";
import { Call } from "./call";
import { EditPlan } from "./inspector";
import { CauseLink, isPlanToBlame, RemedyButtons, RemedyCommands } from "./remedies";
import type { Story } from "./story";

interface Props {
  story: Story;
  findings: readonly Finding[];
  onSelect: (id: string) => void;
  onAsk: (asking: Asking) => void;
}

/** Codes of waits whose message contains the remaining time, so that no date is shown. */
const COUNTDOWN_CODES: ReadonlySet<string> = new Set(["wait.retry", "wait.sleep"]);
/** Maximum number of waits in the summary. `MAX_FINDINGS` limits failures and warnings. */
const MAX_WAITS = 5;
const MAX_FINDINGS = 3;

/** Shows why the execution waits, and what a person can do. */
export function Waits({ story, findings, onSelect, onAsk }: Props) {
  const { live } = story;
  const isStill = live.state === "WAITING" || live.state === "PENDING" || live.state === "PAUSED";
  // While steps run, the summary shows only waits that need attention. Waits for a person come first.
  const waits = ofKind(findings, "WAIT")
    .filter((finding) => isStill || finding.severity !== "INFO")
    .sort((a, b) => Number(needsPerson(b)) - Number(needsPerson(a)));
  if (waits.length === 0) return null;
  return (
    <ul class="waits" aria-label="What it waits for">
      {waits.slice(0, MAX_WAITS).map((finding) => (
        <Wait key={keyOf(finding)} story={story} finding={finding} onSelect={onSelect} onAsk={onAsk} />
      ))}
      {waits.length > MAX_WAITS && <li class="faint">and {waits.length - MAX_WAITS} more</li>}
    </ul>
  );
}

function Wait({ story, finding, onSelect, onAsk }: Omit<Props, "findings"> & { finding: Finding }) {
  const { executionId } = story.about;
  const name = placeOf(finding);
  const asks = finding.remedies.some(({ mutation }) => mutation === "approveStep");
  const call = asks && name !== "" ? askedCall(story, name) : null;
  return (
    <li class={needsPerson(finding) ? "wait needs-person" : "wait"}>
      <Words text={finding.message} />
      {finding.until !== null && !COUNTDOWN_CODES.has(finding.code) && <time dateTime={finding.until}>{formatDateTime(finding.until)}</time>}
      {call && <Call {...call} />}
      <RemedyCommands finding={finding} executionId={executionId} />
      <span class="buttons">
        <RemedyButtons finding={finding} executionId={executionId} onAsk={onAsk} />
        <CauseLink finding={finding} executionId={executionId} />
        {finding.stepId !== null && (
          <button type="button" class="link" onClick={() => onSelect(name)}>
            Show step
          </button>
        )}
      </span>
    </li>
  );
}

/** Shows why the execution failed. */
export function Failures({ story, findings, onSelect, onAsk }: Props) {
  const failures = findings.filter((finding) => isFailure(finding) && finding.severity === "ERROR");
  if (failures.length === 0) return null;
  return (
    <ul class="failures" aria-label="What failed">
      {failures.slice(0, MAX_FINDINGS).map((finding) => (
        <li key={keyOf(finding)}>
          <Failure story={story} finding={finding} onSelect={onSelect} onAsk={onAsk} />
        </li>
      ))}
      {failures.length > MAX_FINDINGS && <li>and {failures.length - MAX_FINDINGS} more</li>}
    </ul>
  );
}

function Failure({ story, finding, onSelect, onAsk }: Omit<Props, "findings"> & { finding: Finding }) {
  const { executionId, planId } = story.about;
  return (
    <Fault
      at={placeOf(finding)}
      code={finding.code}
      cause={finding.message}
      message={errorMessageOf(story, finding) ?? finding.message}
      actions={
        <>
          <RemedyButtons finding={finding} executionId={executionId} onAsk={onAsk} />
          <CauseLink finding={finding} executionId={executionId} />
          <EditPlan planId={planId} isBest={isPlanToBlame(finding)} />
          {finding.stepId !== null && (
            <button type="button" onClick={() => onSelect(placeOf(finding))}>
              Show step
            </button>
          )}
        </>
      }
    >
      <RemedyCommands finding={finding} executionId={executionId} />
    </Fault>
  );
}

/** Prefix of the codes of findings about compensation. */
const COMPENSATION_PREFIX = "compensation.";

/** Shows warnings, and other findings that are worth knowing. */
export function Notes({ story, findings, onSelect, onAsk }: Props) {
  const notes = ofKind(findings, "FAILURE", "WARNING", "TAKEOVER").filter(
    ({ kind, severity, code }) => severity === "WARNING" || (kind === "TAKEOVER" && !story.live.isOver) || (severity === "INFO" && code.startsWith(COMPENSATION_PREFIX)),
  );
  if (notes.length === 0) return null;
  return (
    <ul class="notes" aria-label="Warnings">
      {notes.slice(0, MAX_FINDINGS).map((finding) => (
        <li key={keyOf(finding)} class={finding.severity === "INFO" ? "is-info" : ""}>
          <Words text={finding.message} />
          <RemedyCommands finding={finding} executionId={story.about.executionId} />
          <RemedyButtons finding={finding} executionId={story.about.executionId} onAsk={onAsk} />
          {isPlanToBlame(finding) && (
            <a class="link" href={`/plans/${story.about.planId}`}>
              Edit plan
            </a>
          )}
          {finding.stepId !== null && (
            <button type="button" class="link" onClick={() => onSelect(placeOf(finding))}>
              Show step
            </button>
          )}
        </li>
      ))}
      {notes.length > MAX_FINDINGS && <li class="faint">and {notes.length - MAX_FINDINGS} more</li>}
    </ul>
  );
}

function keyOf({ code, stepId, index, causeSeq, message }: Finding): string {
  return `${code} ${stepId} ${index} ${causeSeq} ${message}`;
}

/** Maximum number of retries that have a link each, and of forks. */
const MAX_COPIES = 5;

/** Links to the retries and forks of the execution, and to the next version of its plan. */
export function Onward({ story }: { story: Story }) {
  const { live } = story;
  const [isAwaited, setAwaited] = useState(false);
  const asked = useAsk(ExecutionOnward, live.isOver ? { id: story.about.executionId } : null, isAwaited ? 2_000 : undefined);
  const { next, replanning, retries: all = [], forks = [] } = asked.data?.execution ?? {};
  const retries = all.filter((retry) => retry.executionId !== next?.executionId);
  useEffect(() => setAwaited(!next && replanning?.state === "PENDING"), [next, replanning]);
  if (!live.isOver || (!next && !replanning && retries.length === 0 && forks.length === 0)) return null;
  return (
    <ul class="waits" aria-label="What goes on after it">
      {(next || replanning) && (
        <li role="status">
          <span>
            {next ? "Planned anew" : replanning?.state === "GIVEN_UP" ? "Not planned anew" : "A model replans the execution"}
            {replanning && (
              <>
                {" because "}
                <Words text={replanning.reason} />
              </>
            )}
            {!next && replanning?.givenUp && (
              <>
                {": "}
                <Words text={replanning.givenUp} />
              </>
            )}
          </span>
          {next && (
            <a class="link" href={`/executions/${next.executionId}`}>
              Go to version {next.plan.version}
            </a>
          )}
        </li>
      )}
      <Copies word="Retried as" copies={retries} />
      <Copies word="Forked as" copies={forks} />
    </ul>
  );
}

/** Links to later executions, newest last. */
function Copies({ word, copies }: { word: string; copies: readonly { executionId: string; state: ExecutionState }[] }) {
  return (
    <>
      {copies.slice(-MAX_COPIES).map(({ executionId, state }) => (
        <li key={executionId}>
          <span>
            {word}{" "}
            <a class="link mono" href={`/executions/${executionId}`}>
              {executionId}
            </a>
          </span>
          <span>{WORD[state]}</span>
        </li>
      ))}
      {copies.length > MAX_COPIES && (
        <li class="faint">
          {word} {copies.length - MAX_COPIES} others before
        </li>
      )}
    </>
  );
}
