/** All executions that wait for a person, with buttons that answer them in place. */

import { useState } from "preact/hooks";

import { ask, useAsk, type ApiError } from "../api/client";
import { ApproveStep, Approvals, AskedCall, ResumeExecution, type ApprovalsResult, type Finding } from "../api/generated";
import { Signal } from "../execution/actions";
import { Call } from "../execution/call";
import { needsPerson, placeOf } from "../execution/findings";
import { refreshNeedyCount } from "../approvals/needy-count";
import { ActButton } from "../ui/act-button";
import { Refused, toApiError } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Empty, Loading, useTitle } from "../ui/page";
import { Plain } from "../ui/plain";
import { Pill } from "../ui/state";
import { formatAge, formatDateTime, useNow } from "../ui/time";
import { countText, Words } from "../ui/words";

const POLL_INTERVAL = 3_000;
const FIRST_CARDS = 50;
/** The API answers with at most this many executions. */
const MAX_CARDS = 200;

type Run = ApprovalsResult["executions"]["nodes"][number];

export function ApprovalsPage() {
  const [first, setFirst] = useState(FIRST_CARDS);
  const asked = useAsk(Approvals, { first }, POLL_INTERVAL);
  const [answered, setAnswered] = useState("");
  const now = useNow(10_000);
  const found = asked.data?.executions;
  const total = found?.totalCount ?? 0;
  useTitle(total > 0 ? `Approvals (${total})` : "Approvals");
  const onAnswered = (text: string) => {
    setAnswered(text);
    asked.refresh();
    refreshNeedyCount();
  };
  return (
    <div class="page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Approvals</h1>
        </div>
        <p class="facts">
          {found && <span>{total === 0 ? "Nothing waits for a person" : `${countText(total, "execution")} ${total === 1 ? "waits" : "wait"} for a person`}</span>}
          <span role="status">{answered}</span>
        </p>
      </header>
      <div class="scroll">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {!found && !asked.error && <Loading />}
        {found && total === 0 && <Empty title="Nothing waits for you">Steps that need an approval, a decision or a signal appear here, and paused executions.</Empty>}
        {found && total > 0 && (
          <ul class="approvals" aria-label="Executions that wait for a person">
            {found.nodes.map((run) => (
              <ApprovalCard key={run.executionId} run={run} now={now} onAnswered={onAnswered} />
            ))}
          </ul>
        )}
        {found && total > found.nodes.length && (
          <p class="list-foot faint">
            {found.nodes.length} of {total.toLocaleString("en")} shown
            {first < MAX_CARDS && (
              <button type="button" class="link" onClick={() => setFirst(MAX_CARDS)}>
                Show more
              </button>
            )}
          </p>
        )}
      </div>
    </div>
  );
}

interface CardProps {
  run: Run;
  now: number;
  onAnswered: (text: string) => void;
}

function ApprovalCard({ run, now, onAnswered }: CardProps) {
  const questions = run.findings.filter(needsPerson);
  return (
    <li class="approval" data-id={run.executionId}>
      <p class="approval-head">
        <Pill state={run.state} />
        <a class="cut" href={`/executions/${run.executionId}`}>
          <Plain text={run.request?.query ?? run.executionId} />
        </a>
        {run.parentExecutionId !== null && <span class="tag">sub-execution</span>}
        <span class="faint" title={formatDateTime(run.createdAt)}>
          created {formatAge(run.createdAt, now)}
        </span>
      </p>
      {questions.map((question) => (
        <Question key={`${question.code} ${placeOf(question)}`} run={run} question={question} onAnswered={onAnswered} />
      ))}
      {questions.length === 0 && <p class="faint">Open the execution to see what it waits for.</p>}
    </li>
  );
}

interface QuestionProps {
  run: Run;
  question: Finding;
  onAnswered: (text: string) => void;
}

function Question({ run, question, onAnswered }: QuestionProps) {
  const id = run.executionId;
  const place = placeOf(question);
  const mutations = new Set(question.remedies.map(({ mutation }) => mutation));
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [isSignalling, setSignalling] = useState(false);
  const answer = async (operation: Promise<unknown>, text: string) => {
    setBusy(true);
    setError(null);
    try {
      await operation;
      onAnswered(text);
    } catch (error) {
      setError(toApiError(error));
    } finally {
      setBusy(false);
    }
  };
  const signal = question.remedies.find(({ mutation }) => mutation === "signalExecution");
  return (
    <div role="group" class="approval-question" aria-label={place === "" ? "The execution" : `Step ${place}`}>
      <p>
        <Words text={question.message} />
      </p>
      {mutations.has("approveStep") && <Approve id={id} question={question} isBusy={isBusy} onAnswer={answer} />}
      <span class="buttons">
        {signal && (
          <ActButton needs="signalExecution" class="primary" onClick={() => setSignalling(true)}>
            <Icon name="signal" />
            Signal…
          </ActButton>
        )}
        {mutations.has("resumeExecution") && (
          <ActButton needs="resumeExecution" class="primary" disabled={isBusy} onClick={() => void answer(ask(ResumeExecution, { id }), "Resumed.")}>
            <Icon name="play" />
            Resume
          </ActButton>
        )}
        {mutations.has("settleStep") && (
          <a class="button" href={`/executions/${id}?step=${encodeURIComponent(question.stepId ?? "")}`}>
            Settle…
          </a>
        )}
      </span>
      {error && <Refused error={error} />}
      {isSignalling && (
        <Signal
          id={id}
          name={question.stepId === null ? "" : signalName(question)}
          onClose={() => {
            setSignalling(false);
            onAnswered("");
          }}
        />
      )}
    </div>
  );
}

/** Returns the name of the awaited signal, which the remedy contains. */
function signalName({ remedies }: Finding): string {
  for (const { mutation, variables } of remedies) {
    if (mutation !== "signalExecution" || variables === null || typeof variables !== "object" || Array.isArray(variables)) continue;
    const name = (variables as Record<string, unknown>).name;
    if (typeof name === "string") return name;
  }
  return "";
}

interface ApproveProps {
  id: string;
  question: Finding;
  isBusy: boolean;
  onAnswer: (operation: Promise<unknown>, text: string) => Promise<void>;
}

/** The call that would be made, and the buttons that allow or reject it. */
function Approve({ id, question, isBusy, onAnswer }: ApproveProps) {
  const { stepId, index } = question;
  const place = placeOf(question);
  const [comment, setComment] = useState("");
  const asked = useAsk(AskedCall, stepId === null ? null : { id, stepId, after: index === null || index === 0 ? null : index - 1 });
  const step = asked.data?.execution?.step;
  const parameters = index === null ? step?.resolvedParameters : (step?.items.find((item) => item.index === index)?.resolvedParameters ?? step?.resolvedParameters);
  const isDecision = question.code.includes("decision");
  const isDangerous = question.remedies.some((remedy) => remedy.mutation === "approveStep" && remedy.isDangerous);
  const decide = (approved: boolean) => {
    const text = approved ? (isDecision ? `${place} is tried again.` : `${place} is approved.`) : `${place} is rejected.`;
    return onAnswer(ask(ApproveStep, { id, stepId: place, approved, comment: comment || null }), text);
  };
  return (
    <>
      {step && <Call toolName={step.toolName} parameters={parameters ?? {}} />}
      {isDangerous && <p class="warning">The tool has an effect, and its earlier call may have taken effect.</p>}
      <form
        class="approval-answer"
        onSubmit={(event) => {
          event.preventDefault();
          void decide(true);
        }}
      >
        <input type="text" aria-label={`Comment on ${place} (optional)`} placeholder="Comment (optional)" value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
        {/* The person must see the call before the button can be used. */}
        <ActButton needs="approveStep" type="submit" class={isDangerous ? "danger" : "primary"} disabled={isBusy || !step}>
          <Icon name={isDecision ? "retry" : "check"} />
          {isDecision ? "Try again" : "Approve"}
        </ActButton>
        <ActButton needs="approveStep" class="danger" disabled={isBusy} onClick={() => void decide(false)}>
          <Icon name="close" />
          Reject
        </ActButton>
      </form>
    </>
  );
}
