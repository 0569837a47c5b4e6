/** Shows remedies as buttons if the page can carry them out, and otherwise as commands. */

import type { Finding, Json, RetryMode } from "../api/generated";
import { isFields } from "../api/json";
import { ActButton } from "../ui/act-button";
import { Icon, type IconName } from "../ui/icons";
import { CopyButton } from "../ui/json";
import type { Asking } from "./actions";
import { placeOf } from "./findings";

type Remedy = Finding["remedies"][number];

interface RemedyAction {
  asking: Asking;
  icon: IconName;
  label: string;
  isDanger: boolean;
}

const RETRY_LABELS: Record<RetryMode, string> = { FAILED: "Retry", FROM_STEP: "Retry from here", ALL: "Retry everything" };

/**
 * Returns the action of the page that carries out a remedy. Returns null if there is none, or if the remedy is for
 * another execution.
 */
function actionFor(remedy: Remedy, finding: Finding, executionId: string): RemedyAction | null {
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
  /** Null if no action is possible. */
  onAsk: ((asking: Asking) => void) | null;
}

/** The buttons of a finding. The best remedy is highlighted, unless it is dangerous. */
export function RemedyButtons({ finding, executionId, onAsk }: Props) {
  if (!onAsk) return null;
  return (
    <>
      {actionsFor(finding, executionId).map((doing) => (
        <ActButton
          needs="approveStep"
          key={doing.label}
          class={doing.isBest && !doing.isDanger ? "primary" : doing.isDanger ? "danger" : ""}
          title={doing.about}
          onClick={() => onAsk(doing.asking)}
        >
          <Icon name={doing.icon} />
          {doing.label}
        </ActButton>
      ))}
    </>
  );
}

/** Returns whether the best remedy is to correct the plan. */
export function isPlanToBlame(finding: Finding): boolean {
  return finding.remedies[0] !== undefined && isRevision(finding.remedies[0]);
}

/** Returns whether a remedy is a new version of the plan. The page shows no button for it, because every failure has a link to the plan. */
function isRevision({ command }: Remedy): boolean {
  return command?.startsWith("faber revise ") ?? false;
}

/** Returns whether the page offers a remedy elsewhere: a button in its header, or a link to the other execution. */
function isShownElsewhere({ command, mutation }: Remedy): boolean {
  return mutation === "resumeExecution" || (command?.startsWith("faber debug ") ?? false);
}

/** Returns the actions of the page for a finding's remedies, without duplicates. */
function actionsFor(finding: Finding, executionId: string): (RemedyAction & { about: string; isBest: boolean })[] {
  const doings = new Map<string, RemedyAction & { about: string; isBest: boolean }>();
  for (const [at, remedy] of finding.remedies.entries()) {
    const doing = actionFor(remedy, finding, executionId);
    if (doing && !doings.has(doing.label)) doings.set(doing.label, { ...doing, about: remedy.label, isBest: at === 0 });
  }
  return [...doings.values()];
}

/** Shows the other remedies as commands to copy. */
export function RemedyCommands({ finding, executionId }: Omit<Props, "onAsk">) {
  const commands = finding.remedies.filter((remedy) => remedy.command !== null && !isRevision(remedy) && !isShownElsewhere(remedy) && !actionFor(remedy, finding, executionId));
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

/** A link to the execution that caused the finding, or that this execution waits for. */
export function CauseLink({ finding, executionId }: Omit<Props, "onAsk">) {
  const { causeExecutionId } = finding;
  if (causeExecutionId === null || causeExecutionId === executionId) return null;
  return (
    <a class="button" href={`/executions/${causeExecutionId}`}>
      Show its execution
    </a>
  );
}
