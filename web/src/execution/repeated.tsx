/** The calls with effects that another run would repeat. */

import type { RepeatedCallsResult } from "../api/generated";
import { countText } from "../ui/words";

export type RepeatedCall = NonNullable<RepeatedCallsResult["execution"]>["repeatedCalls"][number];

/** Maximum number of calls that are listed. */
const MAX_LISTED = 30;

/** A list of the calls. With `executionId`, its title has a link to that execution. */
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
        {calls.slice(0, MAX_LISTED).map((call) => (
          <li key={`${call.stepId} ${call.toolName} ${call.outcomeUnknown}`}>
            <code>{call.stepId}</code>: {countText(call.calls, "call")} of <code>{call.toolName}</code>
            {call.outcomeUnknown && ", and it is unknown whether they took effect"}
          </li>
        ))}
        {calls.length > MAX_LISTED && <li>and {calls.length - MAX_LISTED} more</li>}
      </ul>
    </section>
  );
}
