/** The calls with effects that running something again would repeat. */

import type { RepeatedCallsResult } from "../api/generated";
import { counted } from "../ui/words";

export type RepeatedCall = NonNullable<RepeatedCallsResult["execution"]>["repeatedCalls"][number];

/** The most calls that are listed one by one. */
const LISTED = 30;

/** A list of them, and of which execution they are where that is not the one that is shown. */
export function RepeatedList({ calls, executionId }: { calls: readonly RepeatedCall[]; executionId?: string }) {
  if (calls.length === 0) return null;
  return (
    <section class="repeated" aria-label="Calls that are repeated">
      <p>
        <strong>
          {executionId ? (
            <>
              These calls of{" "}
              <a class="mono" href={`/executions/${executionId}`}>
                {executionId}
              </a>{" "}
              have effects, and are made again:
            </>
          ) : (
            "These calls have effects, and are made again:"
          )}
        </strong>
      </p>
      <ul>
        {calls.slice(0, LISTED).map((call) => (
          <li key={`${call.stepId} ${call.toolName} ${call.outcomeUnknown}`}>
            <code>{call.stepId}</code>: {counted(call.calls, "call")} of <code>{call.toolName}</code>
            {call.outcomeUnknown && ", of which nobody knows if they took effect"}
          </li>
        ))}
        {calls.length > LISTED && <li>and {calls.length - LISTED} more</li>}
      </ul>
    </section>
  );
}
