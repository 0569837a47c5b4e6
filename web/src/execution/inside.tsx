/** The panels beside the graph for nodes inside an open node: an item of a loop, or a step that has not started. */

import { useEffect, useRef } from "preact/hooks";

import { useAsk } from "../api/client";
import { useCell } from "../api/cell";
import { ItemDetail, type Finding } from "../api/generated";
import { ActButton } from "../ui/act-button";
import { Fault, isNotEmpty } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Pill, WORD } from "../ui/state";
import { spentText } from "../ui/time";
import { Linked } from "../ui/words";
import type { Asking } from "./actions";
import type { StepView } from "./fold";
import { Decision, isUnknown, Parameters, Reasons, Rules, SettleButton, ToolName, Whole } from "./inspector";
import type { Item } from "./items";
import { Logs } from "./logs";
import { Panel, Section, type Around, type Opening } from "./panel";
import type { Step, Story } from "./story";

interface ItemProps {
  story: Story;
  step: Step;
  findings: readonly Finding[];
  index: number;
  view: StepView | undefined;
  item: Item | undefined;
  isPast: boolean;
  opening: Opening | null;
  around: Around | null;
  onAsk: (asking: Asking) => void;
  onClose: () => void;
}

/** Shows an item of a loop. */
export function ItemPanel({ story, step, findings, index, view, item, isPast, opening, around, onAsk, onClose }: ItemProps) {
  const state = item?.state ?? "PENDING";
  const asked = useAsk(ItemDetail, state === "PENDING" ? null : { id: story.about.executionId, stepId: step.stepId, after: index === 0 ? null : index - 1 });
  const mark = `${state} ${useCell(story.settled)}`;
  const shown = useRef(mark);
  useEffect(() => {
    if (shown.current !== mark) asked.refresh();
    shown.current = mark;
  }, [mark]);
  const found = asked.data?.execution?.step?.items[0];
  const detail = !isPast && found?.index === index ? found : null;
  const name = `${step.stepId}[${index}]`;
  const decides = !isPast && !story.live.isOver && (item?.waitsFor === "approval" || item?.waitsFor === "decision");
  const canSettle = !isPast && isUnknown(detail);
  const isAgain = item?.waitsFor === "decision";
  return (
    <Panel
      name={name}
      opening={opening}
      around={around}
      onClose={onClose}
      facts={
        <>
          <Pill state={state} />
          {detail?.settled && <span class="tag">settled: {WORD[detail.settled].toLowerCase()}</span>}
          <ToolName step={step} />
          {detail?.workMs != null && <span>{spentText({ worked: detail.workMs, waited: detail.waitedMs ?? 0 })}</span>}
          {detail && detail.attempts > 1 && <span>{detail.attempts} attempts</span>}
        </>
      }
      actions={
        (decides || canSettle) && (
          <>
            {canSettle && <SettleButton step={step.stepId} item={index} onAsk={onAsk} />}
            {decides && (
              <>
                <ActButton needs="approveStep" class={canSettle ? "danger" : "primary"} onClick={() => onAsk({ kind: "approve", step: name })}>
                  <Icon name={isAgain ? "retry" : "check"} />
                  {isAgain ? "Try again" : "Approve"}
                </ActButton>
                <ActButton needs="approveStep" class="danger" onClick={() => onAsk({ kind: "reject", step: name })}>
                  <Icon name="close" />
                  Reject
                </ActButton>
              </>
            )}
          </>
        )
      }
    >
      <Reasons story={story} findings={findings} error={state === "SUCCEEDED" ? null : (detail?.error ?? null)} />
      {detail?.compensation?.error && findings.length === 0 && (
        <Section title="Could not be undone">
          <Fault code={detail.compensation.error.code} message={detail.compensation.error.message} />
        </Section>
      )}
      {state === "PENDING" && <p class="why">It has not started.</p>}
      <Decision detail={detail} name={name} />
      {item?.child && (
        <Section title="Other execution">
          <Linked text={item.child} />
        </Section>
      )}
      <Parameters written={step.parameters} resolved={detail?.resolvedParameters ?? undefined} />
      {detail && !detail.error && (state === "SUCCEEDED" || isNotEmpty(detail.output)) && (
        <Section title="Output">
          <Whole value={detail.output} label={`output of ${name}`} />
        </Section>
      )}
      {view?.lines && <Logs lines={view.lines} index={index} />}
    </Panel>
  );
}

interface PlannedProps {
  step: Step;
  opening: Opening | null;
  around: Around | null;
  onSelect: (id: string) => void;
  onClose: () => void;
}

/** Shows a step of a plan that has no execution yet. */
export function PlannedPanel({ step, opening, around, onSelect, onClose }: PlannedProps) {
  return (
    <Panel
      name={step.stepId}
      opening={opening}
      around={around}
      onClose={onClose}
      facts={
        <>
          <Pill state="PENDING" />
          <ToolName step={step} />
        </>
      }
    >
      <p class="why">The plan that it belongs to has not started.</p>
      <Parameters written={step.parameters} resolved={undefined} />
      <Rules step={step} onSelect={onSelect} />
    </Panel>
  );
}
