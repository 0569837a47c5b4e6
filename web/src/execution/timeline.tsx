/** The times of all steps as rows of bars. Only visible rows are drawn. */

import { useMemo } from "preact/hooks";

import { Dot, TONE } from "../ui/state";
import { formatDuration } from "../ui/time";
import { Virtual } from "../ui/virtual";
import { durationText, type Attempt, type Fold, type StepView } from "./fold";
import { finishedItemsText } from "./items";
import { wordOf } from "./looks";
import { criticalPath } from "./paths";
import type { Story } from "./story";

const ROW_HEIGHT = 30;
/** Maximum number of calls that have a bar each, because a loop can have thousands of calls. */
const MAX_BARS = 200;

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
  const rows = useMemo(() => sortByStart(fold.steps), [fold, fold.length]);
  const percent = (at: number) => Math.min(100, Math.max(0, ((at - begin) / (end - begin)) * 100));
  const shown = selected === null ? null : rows.findIndex((it) => it.id === selected);
  return (
    <div class="timeline">
      <div class="timeline-axis" aria-hidden="true">
        <span class="timeline-name faint">{critical.size > 0 && <span class="critical-key">critical path</span>}</span>
        <span class="timeline-bars">
          {[0, 0.25, 0.5, 0.75, 1].map((it) => (
            <span class="tick" key={it} style={{ left: `${it * 100}%` }}>
              {it === 0 ? "0" : formatDuration((end - begin) * it)}
            </span>
          ))}
        </span>
        <span class="bar-time" />
      </div>
      <Virtual
        items={rows}
        rowHeight={ROW_HEIGHT}
        label="Timeline of the steps"
        shown={shown}
        row={(step) => (
          <Row key={step.id} step={step} percent={percent} end={end} isCritical={critical.has(step.id)} isSelected={step.id === selected} onSelect={onSelect} />
        )}
      />
    </div>
  );
}

/** Returns the steps in the order of their starts. Steps that have not started come last. */
function sortByStart(steps: readonly StepView[]): StepView[] {
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
  const time = finishedItemsText([step]) || durationText(step, end);
  return (
    <div role="listitem" class={`timeline-row${isSelected ? " is-selected" : ""}${isCritical ? " is-critical" : ""}`}>
      <button type="button" class="row-button" onClick={() => onSelect(step.id)}>
        <span class="timeline-name">
          <Dot state={step.state} size={14} />
          <span class="cut">{step.id}</span>
          {step.attempts > 1 && <span class="count">{step.attempts}×</span>}
          <span class="unseen">
            {wordOf(step)}
            {time && `, ${time}`}
            {isCritical && ", on the critical path"}
          </span>
        </span>
        <span class="timeline-bars" aria-hidden="true">
          {step.pauses.map((it, at) => bar(it.from, it.to, "pause", `waits: ${it.kind}`, `p${at}`))}
          {step.items && step.from !== null && bar(step.from, step.to, "group", `${step.items.total} items`, "g")}
          {step.tries.length <= MAX_BARS
            ? step.tries.map((it, at) => bar(it.from, it.to, toneOf(it), titleOf(it, end), `t${at}`))
            : mergeBars(step.tries, end, percent).map((it, at) => bar(it.from, it.to, it.tone, it.count === 1 ? "a call" : `${it.count} calls`, `m${at}`))}
        </span>
        <span class="bar-time faint" aria-hidden="true">
          {time}
        </span>
      </button>
    </div>
  );
}

const TONES: Record<Attempt["end"], string> = { running: "running", succeeded: TONE.SUCCEEDED, failed: TONE.FAILED, interrupted: "retrying", cancelled: "stopped" };

function toneOf(it: Attempt): string {
  return it.isUndo && it.end !== "failed" ? "undone" : TONES[it.end];
}

function titleOf(it: Attempt, end: number): string {
  const what = it.isUndo ? "compensation" : it.index === null ? `attempt ${it.number}` : `item ${it.index}, attempt ${it.number}`;
  return `${what}: ${it.end}, ${formatDuration((it.to ?? end) - it.from)}`;
}

interface Stretch {
  from: number;
  to: number;
  tone: string;
  count: number;
}

/** Minimum gap between two bars, in percent. Bars that are closer are merged. */
const MIN_GAP = 0.25;

/** Merges bars that end in the same way and touch. Failed calls are drawn last, so that they stay visible. */
function mergeBars(tries: readonly Attempt[], end: number, percent: (at: number) => number): Stretch[] {
  const open = new Map<string, Stretch>();
  const found: Stretch[] = [];
  for (const it of [...tries].sort((a, b) => a.from - b.from)) {
    const tone = toneOf(it);
    const to = it.to ?? end;
    const last = open.get(tone);
    if (last && percent(it.from) - percent(last.to) < MIN_GAP) {
      last.to = Math.max(last.to, to);
      last.count += 1;
    } else {
      const next = { from: it.from, to, tone, count: 1 };
      open.set(tone, next);
      found.push(next);
    }
  }
  return found.sort((a, b) => Number(a.tone === "bad") - Number(b.tone === "bad"));
}
