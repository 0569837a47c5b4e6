/** The executions that start at a later time, the next one first. */

import { useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { Scheduled } from "../api/generated";
import { BulkDialog } from "../bulk/dialog";
import { actorText } from "../execution/people";
import { ActButton } from "../ui/act-button";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Crumbs, Empty, Loading, useTitle } from "../ui/page";
import { Plain } from "../ui/plain";
import { formatDateTime, oneUnitSpan, useNow } from "../ui/time";

const POLL_INTERVAL = 3_000;

export function ScheduledPage() {
  useTitle("Scheduled");
  const asked = useAsk(Scheduled, {}, POLL_INTERVAL);
  const now = useNow(1_000);
  const [cancelled, setCancelled] = useState<string | null>(null);
  const found = asked.data?.executions;
  const runs = (found?.nodes ?? [])
    .flatMap((run) => (run.startAt !== null && Date.parse(run.startAt) > now ? [{ ...run, at: Date.parse(run.startAt) }] : []))
    .sort((a, b) => a.at - b.at);
  return (
    <div class="page">
      <header class="head">
        <Crumbs trail={[["Executions", "/executions"]]} here="scheduled" />
        <div class="head-line">
          <h1 tabIndex={-1}>Scheduled</h1>
        </div>
        {found && found.totalCount > found.nodes.length && <p class="facts">Only the {found.nodes.length} newest executions that have not started are searched.</p>}
      </header>
      <div class="scroll">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {!found && !asked.error && <Loading />}
        {found && runs.length === 0 && (
          <Empty title="Nothing is scheduled">
            Choose a time under <strong>Run with options…</strong> of a plan.
          </Empty>
        )}
        {runs.length > 0 && (
          <div class="table-frame">
            <table class="plain wide">
              <thead>
                <tr>
                  <th scope="col">Starts</th>
                  <th scope="col">Execution</th>
                  <th scope="col">Started by</th>
                  <th scope="col">
                    <span class="unseen">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {runs.map((run) => (
                  <tr key={run.executionId} data-id={run.executionId}>
                    <td>
                      in {oneUnitSpan(run.at - now)}
                      <span class="faint"> · {formatDateTime(run.startAt!)}</span>
                    </td>
                    <td>
                      <a href={`/executions/${run.executionId}`}>
                        <Plain text={run.request?.query ?? run.executionId} />
                      </a>
                    </td>
                    <td class="faint">{run.createdBy && <Plain text={actorText(run.createdBy)} />}</td>
                    <td class="right">
                      <ActButton needs="bulkControl" class="danger" onClick={() => setCancelled(run.executionId)}>
                        <Icon name="stop" />
                        Cancel
                      </ActButton>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
      {cancelled !== null && <BulkDialog action="CANCEL" filter={{ executionIds: [cancelled] }} onDone={asked.refresh} onClose={() => setCancelled(null)} />}
    </div>
  );
}
