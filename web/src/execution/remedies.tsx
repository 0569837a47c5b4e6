/** What helps, as buttons where the page can do it, and as commands where it cannot. */

import type { Finding, Json, RetryMode } from "../api/generated";
import { isFields } from "../api/json";
import { Icon, type IconName } from "../ui/icons";
import { CopyButton } from "../ui/json";
import type { Asking } from "./actions";
import { placeOf } from "./findings";

type Remedy = Finding["remedies"][number];

interface Doing {
  asking: Asking;
  icon: IconName;
  label: string;
  isDanger: boolean;
}

const RETRY_LABELS: Record<RetryMode, string> = { FAILED: "Retry", FROM_STEP: "Retry from here", ALL: "Retry everything" };

/** What the page asks for a remedy; nothing where the page cannot do it, or it is for another execution. */
function doingOf(remedy: Remedy, finding: Finding, executionId: string): Doing | null {
  const given: Record<string, Json> = isFields(remedy.variables) ? remedy.variables : {};
  if (typeof given.executionId === "string" && given.executionId !== executionId) return null;
  const step = placeOf(finding) || text(given.stepId);
  switch (remedy.mutation) {
    case "retryExecution": {
      const fromStep = text(given.fromStep);
      const mode = (text(given.mode) || (fromStep ? "FROM_STEP" : "FAILED")) as RetryMode;
      return { asking: { kind: "retry", mode, ...(fromStep ? { step: fromStep } : {}) }, icon: "retry", label: RETRY_LABELS[mode], isDanger: remedy.isDangerous };
    }
    case "approveStep": {
      if (step === "") return null;
      if (given.approved === false) return { asking: { kind: "reject", step }, icon: "close", label: "Reject", isDanger: true };
      return { asking: { kind: "approve", step }, icon: "check", label: finding.code.includes("decision") ? "Try again" : "Approve", isDanger: remedy.isDangerous };
    }
    case "settleStep":
      return step === "" ? null : { asking: { kind: "settle", step: text(given.stepId) || step, item: finding.index }, icon: "check", label: "Settle…", isDanger: false };
    case "signalExecution":
      return { asking: { kind: "signal", name: text(given.name) }, icon: "signal", label: "Signal", isDanger: false };
    default:
      return null;
  }
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

interface Props {
  finding: Finding;
  executionId: string;
  /** Nothing is done about the past. */
  onAsk: ((asking: Asking) => void) | null;
}

/** The buttons of a finding. What helps best stands out, unless it may do harm. */
export function RemedyButtons({ finding, executionId, onAsk }: Props) {
  if (!onAsk) return null;
  return (
    <>
      {doingsOf(finding, executionId).map((doing) => (
        <button
          key={doing.label}
          type="button"
          class={doing.isBest && !doing.isDanger ? "primary" : doing.isDanger ? "danger" : ""}
          title={doing.about}
          onClick={() => onAsk(doing.asking)}
        >
          <Icon name={doing.icon} />
          {doing.label}
        </button>
      ))}
    </>
  );
}

/** Whether correcting the plan helps best. */
export function isPlanToBlame(finding: Finding): boolean {
  return finding.remedies[0] !== undefined && isRevision(finding.remedies[0]);
}

/** The page has a link to the plan beside every failure. */
function isRevision({ command }: Remedy): boolean {
  return command?.startsWith("faber revise ") ?? false;
}

/** What the page has a place for already: a button in its head, and a link to the other execution. */
function isElsewhere({ command, mutation }: Remedy): boolean {
  return mutation === "resumeExecution" || (command?.startsWith("faber debug ") ?? false);
}

/** What is done with each remedy that the page can do; each once. */
function doingsOf(finding: Finding, executionId: string): (Doing & { about: string; isBest: boolean })[] {
  const doings = new Map<string, Doing & { about: string; isBest: boolean }>();
  for (const [at, remedy] of finding.remedies.entries()) {
    const doing = doingOf(remedy, finding, executionId);
    if (doing && !doings.has(doing.label)) doings.set(doing.label, { ...doing, about: remedy.label, isBest: at === 0 });
  }
  return [...doings.values()];
}

/** The remedies that the page cannot do itself, as commands to be copied. */
export function RemedyCommands({ finding, executionId }: Omit<Props, "onAsk">) {
  const commands = finding.remedies.filter((remedy) => remedy.command !== null && !isRevision(remedy) && !isElsewhere(remedy) && !doingOf(remedy, finding, executionId));
  if (commands.length === 0) return null;
  return (
    <ul class="remedies">
      {commands.map(({ label, command }) => (
        <li key={command}>
          <span>{label}</span>
          <code>{command}</code>
          <CopyButton text={() => command!} label="Copy the command" />
        </li>
      ))}
    </ul>
  );
}

/** The way to the execution that caused it, or that it waits for. */
export function CauseLink({ finding, executionId }: Omit<Props, "onAsk">) {
  const { causeExecutionId } = finding;
  if (causeExecutionId === null || causeExecutionId === executionId) return null;
  return (
    <a class="button" href={`/executions/${causeExecutionId}`}>
      Show its execution
    </a>
  );
}
