/** The calls that compensate an execution if it is cancelled. */

import type { UndoCallsResult } from "../api/generated";
import { placeOf } from "./findings";

type UndoCall = NonNullable<UndoCallsResult["execution"]>["undoCalls"][number];

/** Maximum number of calls that are listed. */
const MAX_LISTED = 30;

/** A list of the calls. For a step of a sub-plan, the list also names the child execution. */
export function UndoList({ calls, executionId }: { calls: readonly UndoCall[]; executionId: string }) {
  if (calls.length === 0) return null;
  return (
    <section class="repeated" aria-label="Calls that undo it">
      <p>
        <strong>These calls undo what was done:</strong>
      </p>
      <ul>
        {calls.slice(0, MAX_LISTED).map((call) => (
          <li key={`${call.executionId} ${placeOf(call)}`}>
            <code>{placeOf(call)}</code>: <code>{call.toolName}</code>
            {call.executionId !== executionId && (
              <>
                {" in "}
                <a class="mono" href={`/executions/${call.executionId}`}>
                  {call.executionId}
                </a>
              </>
            )}
          </li>
        ))}
        {calls.length > MAX_LISTED && <li>and {calls.length - MAX_LISTED} more</li>}
      </ul>
    </section>
  );
}
