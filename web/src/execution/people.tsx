/** The people and programs that gave commands to an execution, and their reasons. */

import type { Happened, Json, WhoActed } from "../api/generated";
import { isFields } from "../api/json";
import { Plain } from "../ui/plain";
import { formatClockTime, formatDateTime } from "../ui/time";
import { Section } from "./panel";
import type { Story } from "./story";

/** Returns the name of an actor in words. */
export function actorText({ kind, name, client }: WhoActed): string {
  const who = kind === "FABER" ? "Faber" : kind === "LOCAL" ? "a local caller" : (name ?? "a caller");
  return client === null ? who : `${who} with ${client}`;
}

/** The words for types of events that a command causes. Other types are shown as they are. */
const WORDS: Record<string, string> = {
  step_approved: "Approved",
  step_settled: "Settled",
  step_failed: "Rejected",
  step_succeeded: "Signal sent",
  paused: "Paused",
  resumed: "Resumed",
  cancel_requested: "Cancelled",
};

/** Returns the comment or the reason of a command. */
function reasonOf(data: Json): string {
  if (!isFields(data)) return "";
  for (const text of [data.comment, data.reason, isFields(data.error) ? data.error.message : null]) {
    if (typeof text === "string" && text !== "") return text.replace(/^a person rejected it(?:: )?/, "");
  }
  return "";
}

type CommandEvent = Happened & { actor: WhoActed };

/** The commands of each execution, and the number of events that were searched for them. */
const found = new WeakMap<Story, { length: number; commands: CommandEvent[] }>();

/** Returns the commands about one step, or about the whole execution if `stepId` is null. */
function commandsOf(story: Story, stepId: string | null): CommandEvent[] {
  const known = found.get(story) ?? { length: 0, commands: [] };
  // A running execution draws the page many times a second, so only new events are searched.
  for (const event of story.events.slice(known.length)) {
    if (event.actor !== null && event.type !== "created") known.commands.push(event as CommandEvent);
  }
  known.length = story.events.length;
  found.set(story, known);
  const end = story.scrub.value ?? Infinity;
  return known.commands.filter((event) => event.stepId === stepId && event.seq <= end);
}

function Command({ event }: { event: CommandEvent }) {
  const reason = reasonOf(event.data);
  const index = isFields(event.data) && typeof event.data.index === "number" ? `[${event.data.index}] ` : "";
  return (
    <>
      {index}
      {WORDS[event.type] ?? event.type.replaceAll("_", " ")} by <strong><Plain text={actorText(event.actor)} /></strong>
      {", "}
      <time dateTime={event.at} title={formatDateTime(event.at)}>
        {formatClockTime(event.at).slice(0, 8)}
      </time>
      {reason !== "" && (
        <>
          {": "}
          <q>
            <Plain text={reason} />
          </q>
        </>
      )}
    </>
  );
}

/** Maximum number of commands that are listed. */
const MAX_COMMANDS = 20;

/** The commands about a step, as a section of its panel. */
export function StepCommands({ story, stepId }: { story: Story; stepId: string }) {
  const commands = commandsOf(story, stepId).slice(-MAX_COMMANDS);
  if (commands.length === 0) return null;
  return (
    <Section title="Decisions">
      <ul class="plain-list commands">
        {commands.map((event) => (
          <li key={event.seq}>
            <Command event={event} />
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** The last command about the whole execution, such as a pause or a cancellation. */
export function LastCommand({ story }: { story: Story }) {
  const last = commandsOf(story, null).at(-1);
  return last ? (
    <span class="last-command">
      <Command event={last} />
    </span>
  ) : null;
}
