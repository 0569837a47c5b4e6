/** A slider that shows the execution at an earlier position of its log. */

import { formatClockTime } from "../ui/time";
import { Icon } from "../ui/icons";
import { useCell } from "../api/cell";
import type { Story } from "./story";

export function Scrubber({ story, onScrub }: { story: Story; onScrub: (seq: number | null) => void }) {
  const at = useCell(story.scrub);
  useCell(story.version);
  const last = Math.max(1, story.lastSeq);
  const seq = Math.min(at ?? last, last);
  const event = story.events[seq - 1];
  const text = event ? `event ${seq} of ${last}: ${event.type.replaceAll("_", " ")}${event.stepId ? ` ${event.stepId}` : ""}, ${formatClockTime(event.at)}` : "";
  return (
    <div class={`scrubber${at === null ? "" : " is-past"}`}>
      <label class="scrubber-range">
        <span class="unseen">Moment of the log</span>
        <input
          type="range"
          min={1}
          max={last}
          value={seq}
          aria-valuetext={text}
          onInput={(change) => {
            const value = Number(change.currentTarget.value);
            onScrub(value >= last ? null : value);
          }}
        />
      </label>
      <span class="scrubber-text cut">
        {at === null ? <span class="faint">{story.live.isOver ? "the end" : "now"}</span> : text}
      </span>
      <button type="button" class="ghost" disabled={at === null} onClick={() => onScrub(null)}>
        <Icon name="skip" />
        {story.live.isOver ? "To the end" : "Back to now"}
      </button>
    </div>
  );
}
