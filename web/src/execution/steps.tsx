/** The steps as rows. The list replaces the graph for people who use a screen reader. */

import { useMemo } from "preact/hooks";

import type { Finding } from "../api/generated";
import { useParam } from "../router";
import { Dot } from "../ui/state";
import { plain } from "../ui/plain";
import { Virtual } from "../ui/virtual";
import { durationText, type Fold } from "./fold";
import { finishedItemsText } from "./items";
import { toneOf, wordOf } from "./looks";
import type { Story } from "./story";

const ROW_HEIGHT = 34;

interface Props {
  story: Story;
  fold: Fold;
  findings: readonly Finding[];
  now: number;
  selected: string;
  onSelect: (id: string) => void;
}

export function Steps({ story, fold, findings, now, selected, onSelect }: Props) {
  const [filter, setFilter] = useParam("steps");
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const reasons = useMemo(() => mostSevereByStep(findings), [findings]);
  const rows = useMemo(
    () =>
      fold.steps.filter((it) => {
        const text = `${it.id} ${story.stepOf.get(it.id)?.toolName} ${wordOf(it)} ${reasons.get(it.id)?.code ?? ""}`.toLowerCase();
        return words.every((word) => text.includes(word));
      }),
    [fold, fold.length, filter, reasons],
  );
  return (
    <div class="events">
      <div class="pane-bar">
        <label class="search">
          <span class="unseen">Filter steps</span>
          <input type="search" placeholder="Filter: a step, a tool, a state" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <span class="faint" aria-live="polite">
          {rows.length === fold.steps.length ? `${rows.length} steps` : `${rows.length} of ${fold.steps.length} steps`}
        </span>
      </div>
      <Virtual
        items={rows}
        rowHeight={ROW_HEIGHT}
        label="Steps"
        shown={rows.findIndex((it) => it.id === selected)}
        row={(it) => (
          <div role="listitem" key={it.id} class={`step-row${it.id === selected ? " is-selected" : ""}`} data-step={it.id} data-state={it.state}>
            <button type="button" class="row-button" onClick={() => onSelect(it.id)}>
              <Dot state={it.state} />
              <span class="step-name cut">{it.id}</span>
              <span class="step-tool cut mono faint">{story.stepOf.get(it.id)?.plan ?? story.stepOf.get(it.id)?.toolName}</span>
              <span class={`step-word text-${toneOf(it)}`}>{wordOf(it)}</span>
              <span class="step-error cut faint">{plain((reasons.get(it.id)?.message ?? "").replaceAll("`", ""))}</span>
              <span class="step-time faint">{finishedItemsText([it]) || durationText(it, now)}</span>
            </button>
          </div>
        )}
      />
    </div>
  );
}

/** Returns the most severe finding about each step. */
function mostSevereByStep(findings: readonly Finding[]): Map<string, Finding> {
  const first = new Map<string, Finding>();
  for (const finding of findings) if (finding.stepId !== null && !first.has(finding.stepId)) first.set(finding.stepId, finding);
  return first;
}
