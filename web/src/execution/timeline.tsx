/** When every step ran, tried, and waited: rows of bars, of which only those are there that are seen. */

import { useMemo } from "preact/hooks";

import { Dot, TONE, WORD } from "../ui/state";
import { span } from "../ui/time";
import { Virtual } from "../ui/virtual";
import { criticalPath, type Fold, type StepView } from "./fold";
import type { Story } from "./story";

const ROW = 30;
/** The most bars that one row has: a loop may have thousands of calls. */
const BARS = 200;

interface Props {
  story: Story;
  fold: Fold;
  now: number;
  selected: string | null;
  onSelect: (id: string) => void;
}

export function Timeline({ story, fold, now, selected, onSelect }: Props) {
  const isOver = fold.isOver;
  const begin = fold.startedAt ?? fold.createdAt ?? now;
  const end = Math.max(begin + 1, isOver ? (fold.finishedAt ?? fold.at) : story.scrub.value === null ? now : fold.at);
  const critical = useMemo(() => criticalPath(fold, story.dependsOn), [fold, fold.length, story]);
  const rows = useMemo(() => inOrder(fold.steps), [fold, fold.length]);
  const percent = (at: number) => Math.min(100, Math.max(0, ((at - begin) / (end - begin)) * 100));
  const shown = selected === null ? null : rows.findIndex((it) => it.id === selected);
  return (
    <div class="timeline">
      <div class="timeline-axis" aria-hidden="true">
        <span class="timeline-name faint">{critical.size > 0 && <span class="critical-key">critical path</span>}</span>
        <span class="timeline-bars">
          {[0, 0.25, 0.5, 0.75, 1].map((it) => (
            <span class="tick" key={it} style={{ left: `${it * 100}%` }}>
              {it === 0 ? "0" : span((end - begin) * it)}
            </span>
          ))}
        </span>
      </div>
      <Virtual
        items={rows}
        rowHeight={ROW}
        label="Timeline of the steps"
        shown={shown}
        row={(step) => (
          <Row key={step.id} step={step} percent={percent} end={end} isCritical={critical.has(step.id)} isSelected={step.id === selected} onSelect={onSelect} />
        )}
      />
    </div>
  );
}

/** Steps in the order in which they began; what has not begun comes last. */
function inOrder(steps: readonly StepView[]): StepView[] {
  return [...steps].sort((a, b) => (a.from ?? Infinity) - (b.from ?? Infinity) || 0);
}

interface RowProps {
  step: StepView;
  percent: (at: number) => number;
  end: number;
  isCritical: boolean;
  isSelected: boolean;
  onSelect: (id: string) => void;
}

function Row({ step, percent, end, isCritical, isSelected, onSelect }: RowProps) {
  const bar = (from: number, to: number | null, tone: string, title: string, key: string) => {
    const left = percent(from);
    return (
      <span class={`bar tone-${tone}`} key={key} title={title} style={{ left: `${left}%`, width: `${Math.max(0.15, percent(to ?? end) - left)}%` }} />
    );
  };
  const time = step.from === null ? "" : span((step.to ?? end) - step.from);
  return (
    <div role="listitem" class={`timeline-row${isSelected ? " is-selected" : ""}${isCritical ? " is-critical" : ""}`}>
      <button type="button" class="row-button" onClick={() => onSelect(step.id)}>
        <span class="timeline-name">
          <Dot state={step.state} size={14} />
          <span class="cut">{step.id}</span>
          {step.attempts > 1 && <span class="count">{step.attempts}×</span>}
          <span class="unseen">
            {WORD[step.state]}
            {time && `, ${time}`}
            {isCritical && ", on the critical path"}
          </span>
        </span>
        <span class="timeline-bars" aria-hidden="true">
          {step.pauses.map((it, at) => bar(it.from, it.to, "pause", `waits: ${it.kind}`, `p${at}`))}
          {step.items && step.from !== null && bar(step.from, step.to, "group", `${step.items.total} items`, "g")}
          {step.tries.slice(-BARS).map((it, at) =>
            bar(it.from, it.to, toneOf(it.end, it.isUndo), `${it.isUndo ? "undoes" : `attempt ${it.number}`}: ${it.end}, ${span((it.to ?? end) - it.from)}`, `t${at}`),
          )}
          <span class="bar-time faint" style={barTime(percent(step.from ?? end), percent(step.to ?? end))}>
            {time}
          </span>
        </span>
      </button>
    </div>
  );
}

/** The time stands behind the bar, or before it where there is no room. */
function barTime(left: number, right: number): Record<string, string> {
  if (right < 86) return { left: `calc(${right}% + 6px)` };
  return left > 14 ? { right: `calc(${100 - left}% + 6px)` } : { right: "6px" };
}

function toneOf(end: string, isUndo: boolean): string {
  if (isUndo) return "undone";
  const tones: Record<string, string> = { running: "running", succeeded: TONE.SUCCEEDED, failed: TONE.FAILED, interrupted: "retrying", cancelled: "stopped" };
  return tones[end] ?? "idle";
}
