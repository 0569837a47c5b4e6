/** The logs of all steps of an execution, by time. */

import { useMemo, useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { LogEvents } from "../api/generated";
import { isFields } from "../api/json";
import { useParam } from "../router";
import { Refused, toApiError } from "../ui/fault";
import { Icon } from "../ui/icons";
import { plain } from "../ui/plain";
import { formatClockTime } from "../ui/time";
import { Virtual } from "../ui/virtual";
import { countText } from "../ui/words";
import { download } from "../viewer/download";
import { lineOf, type Fold } from "./fold";
import type { Line } from "./lines";
import type { Story } from "./story";

const ROW_HEIGHT = 24;

/** One row of the logs. A text with several lines has a row for each. */
interface LogRow extends Line {
  stepId: string;
}

interface Props {
  story: Story;
  fold: Fold;
  onSelect: (id: string) => void;
}

export function AllLogs({ story, fold, onSelect }: Props) {
  const [filter, setFilter] = useParam("logs");
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const all = useMemo(() => rowsOf(fold), [fold, fold.length]);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(() => (words.length === 0 ? all : all.filter((row) => words.every((word) => `${row.stepId} ${row.text}`.toLowerCase().includes(word)))), [all, filter]);
  const isShortened = fold.steps.some((step) => (step.lines?.before ?? 0) > 0);
  const save = async () => {
    setBusy(true);
    setError(null);
    try {
      download(`${story.about.executionId}.log`, "text/plain", await readWholeLog(story.about.executionId));
    } catch (error) {
      setError(toApiError(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="events">
      <div class="pane-bar">
        <label class="search">
          <span class="unseen">Filter logs</span>
          <input type="search" placeholder="Filter: a step, words of the text" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <span class="faint" aria-live="polite">
          {rows.length === all.length ? countText(all.length, "line") : `${rows.length.toLocaleString("en")} of ${countText(all.length, "line")}`}
          {isShortened && ", without the oldest: download them"}
        </span>
        <span class="grow" />
        <button type="button" disabled={isBusy} onClick={() => void save()}>
          <Icon name="download" />
          {isBusy ? "Reading…" : "Download"}
        </button>
      </div>
      {error && <Refused error={error} />}
      {all.length === 0 ? (
        <p class="faint log-none">No step has reported progress, failed or written to standard error.</p>
      ) : (
        <Virtual
          items={rows}
          rowHeight={ROW_HEIGHT}
          label="Logs"
          sticksToEnd={!story.live.isOver && filter === ""}
          row={(row, at) => (
            <div role="listitem" key={at} class={row.isBad ? "log-row is-bad" : "log-row"}>
              <button type="button" class="row-button mono" title={plain(row.text)} onClick={() => onSelect(row.stepId)}>
                <span class="faint log-time">{formatClockTime(new Date(row.at).toISOString())}</span>
                <span class="log-step cut">
                  {row.stepId}
                  {row.index !== null && `[${row.index}]`}
                </span>
                <span class="cut log-text">{plain(row.text)}</span>
              </button>
            </div>
          )}
        />
      )}
    </div>
  );
}

function rowsOf(fold: Fold): LogRow[] {
  const rows = fold.steps.flatMap((step) => (step.lines?.all ?? []).flatMap((line) => line.text.trimEnd().split("\n").map((text) => ({ ...line, text, stepId: step.id }))));
  // The sort is stable, so lines with the same time keep their order.
  return rows.sort((a, b) => a.at - b.at);
}

/** Reads all events again, because the page keeps only the beginning of long texts. */
async function readWholeLog(id: string): Promise<string> {
  const lines: string[] = [];
  for (let afterSeq = 0; ; ) {
    const { execution } = await ask(LogEvents, { id, afterSeq });
    const events = execution?.events ?? [];
    for (const { at, type, stepId, attempt, data } of events) {
      const line = stepId === null || !isFields(data) ? null : lineOf({ type, attempt }, data, Date.parse(at));
      if (line) lines.push(`${at} ${stepId}${line.index === null ? "" : `[${line.index}]`} attempt ${line.attempt}: ${line.text.trimEnd()}`);
    }
    const last = events.at(-1)?.seq ?? 0;
    if (last === 0 || last >= (execution?.seq ?? 0)) return `${lines.join("\n")}\n`;
    afterSeq = last;
  }
}
