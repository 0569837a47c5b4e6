/** The event log of an execution. */

import { useMemo, useState } from "preact/hooks";

import { ask } from "../api/client";
import { OneEvent, type Happened, type Json } from "../api/generated";
import { print } from "../api/json";
import { JsonView } from "../ui/json";
import { plain } from "../ui/plain";
import { formatClockTime } from "../ui/time";
import { Virtual } from "../ui/virtual";
import { useParam } from "../router";
import type { Story } from "./story";

const ROW_HEIGHT = 30;

interface Props {
  story: Story;
  upTo: number;
  onSelect: (id: string) => void;
  onScrub: (seq: number) => void;
}

const KINDS: Record<string, string> = {
  step_started: "running",
  step_succeeded: "good",
  step_failed: "bad",
  step_retry_scheduled: "retrying",
  step_interrupted: "retrying",
  step_waiting: "waiting",
  step_settled: "good",
  step_skipped: "skipped",
  step_cancelled: "stopped",
  step_compensated: "undone",
  step_compensation_failed: "bad",
  cancel_requested: "stopped",
  paused: "waiting",
};

export function Events({ story, upTo, onSelect, onScrub }: Props) {
  const [filter, setFilter] = useParam("events");
  const [open, setOpen] = useState<{ seq: number; data: Json } | null>(null);
  const [error, setError] = useState<string | null>(null);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const length = story.events.length;
  const rows = useMemo(
    () => story.events.filter((it) => it.seq <= upTo && words.every((word) => textOf(it).includes(word))),
    [story, length, upTo, filter],
  );
  const show = async (event: Happened) => {
    if (event.stepId !== null) onSelect(event.stepId);
    setOpen({ seq: event.seq, data: event.data });
    setError(null);
    try {
      const whole = await ask(OneEvent, { id: story.about.executionId, afterSeq: event.seq - 1 });
      const [found] = whole.execution?.events ?? [];
      if (found) setOpen((now) => (now?.seq === found.seq ? { seq: found.seq, data: found.data } : now));
    } catch (error) {
      setError((error as Error).message);
    }
  };
  return (
    <div class="events">
      <div class="pane-bar">
        <label class="search">
          <span class="unseen">Filter events</span>
          <input type="search" placeholder="Filter: a type, a step, words of the data" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <span class="faint" aria-live="polite">
          {rows.length === length ? `${length} events` : `${rows.length} of ${length} events`}
        </span>
      </div>
      <Virtual
        items={rows}
        rowHeight={ROW_HEIGHT}
        label="Events"
        sticksToEnd={!story.live.isOver && filter === ""}
        row={(event) => (
          <div role="listitem" key={event.seq} class={`event-row${open?.seq === event.seq ? " is-selected" : ""}`}>
            <button type="button" class="row-button" onClick={() => void show(event)} onDblClick={() => onScrub(event.seq)}>
              <span class="event-seq faint">{event.seq}</span>
              <span class="event-at mono">{formatClockTime(event.at)}</span>
              <span class={`event-type text-${KINDS[event.type] ?? "plain"}`}>{event.type.replaceAll("_", " ")}</span>
              <span class="event-step cut">
                {event.stepId}
                {event.attempt !== null && event.attempt > 1 && <span class="count">{event.attempt}×</span>}
              </span>
              <span class="event-data cut mono faint">{plain(briefly(event.data))}</span>
            </button>
          </div>
        )}
      />
      {open && (
        <div class="event-detail">
          <div class="pane-bar">
            <strong>Event {open.seq}</strong>
            <button type="button" class="link" onClick={() => onScrub(open.seq)}>
              Show this moment
            </button>
            <button type="button" class="link" onClick={() => setOpen(null)}>
              Close
            </button>
          </div>
          {error && <p class="warning">What was too large for the list could not be asked for: {error}</p>}
          <JsonView value={open.data} label={`event ${open.seq}`} />
        </div>
      )}
    </div>
  );
}

const texts = new WeakMap<Happened, string>();

function textOf(event: Happened): string {
  let text = texts.get(event);
  if (text === undefined) {
    text = `${event.type} ${event.type.replaceAll("_", " ")} ${event.stepId ?? ""} ${print(event.data)}`.toLowerCase();
    texts.set(event, text);
  }
  return text;
}

function briefly(data: Json): string {
  const text = print(data);
  return text === "{}" ? "" : text.slice(0, 240);
}
