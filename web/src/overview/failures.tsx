/** The failures of a period, grouped by tool and error code. */

import { useMemo, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { CODES } from "../api/codes";
import { SampleCauses, type ExecutionFilter, type OverviewCountsResult } from "../api/generated";
import { BulkDialog } from "../bulk/dialog";
import { listPath } from "../lists/filter";
import { ActButton } from "../ui/act-button";
import { Icon } from "../ui/icons";
import { Plain, plain } from "../ui/plain";
import { formatAge, formatDateTime } from "../ui/time";
import { countText } from "../ui/words";

type Count = OverviewCountsResult["failures"][number];

/** Failures with the same cause. */
interface Group extends Pick<Count, "count" | "firstAt" | "lastAt" | "sampleExecutionId"> {
  /** Null if the errors come from no step, such as an exceeded deadline. */
  tool: string | null;
  code: string;
}

/** Returns the groups, largest first. Executions without a failed step have groups by code only. */
function groupsOf({ failures, codes }: Pick<OverviewCountsResult, "failures" | "codes">): Group[] {
  const groups = failures.map(({ keys, ...count }): Group => ({ ...count, tool: keys[0]!, code: keys[1]! }));
  for (const { keys, ...count } of codes) {
    const [code = ""] = keys;
    const ofSteps = groups.filter((group) => group.code === code).reduce((sum, group) => sum + group.count, 0);
    if (count.count > ofSteps) groups.push({ ...count, count: count.count - ofSteps, tool: null, code });
  }
  return groups.sort((a, b) => b.count - a.count);
}

interface Props {
  counts: OverviewCountsResult;
  /** Start of the period, for the filter of a retry and for links. */
  from: string;
  now: number;
}

export function FailureGroups({ counts, from, now }: Props) {
  const groups = useMemo(() => groupsOf(counts), [counts]);
  const ids = useMemo(() => [...new Set(groups.map((group) => group.sampleExecutionId))], [groups]);
  const samples = useAsk(SampleCauses, ids.length > 0 ? { ids } : null);
  const causes = new Map(samples.data?.executions.nodes.map((run) => [run.executionId, run.findings[0]?.message ?? ""]));
  const [asking, setAsking] = useState<Group | null>(null);
  if (groups.length === 0) return <p class="faint overview-none">Nothing failed in this period.</p>;
  return (
    <>
      <ul class="causes" aria-label="Failures by cause">
        {groups.map((group) => (
          <Cause key={`${group.tool} ${group.code}`} group={group} cause={causes.get(group.sampleExecutionId) ?? ""} from={from} now={now} onRetry={() => setAsking(group)} />
        ))}
      </ul>
      {asking && <BulkDialog action="RETRY" filter={filterOf(asking, from)} onClose={() => setAsking(null)} />}
    </>
  );
}

function filterOf({ tool, code }: Group, from: string): ExecutionFilter {
  return { state: ["FAILED"], errorCode: code, failedTool: tool, from, parts: false };
}

function Cause({ group, cause, from, now, onRetry }: { group: Group; cause: string; from: string; now: number; onRetry: () => void }) {
  const { tool, code, count, firstAt, lastAt, sampleExecutionId } = group;
  const [meaning] = CODES[code] ?? [];
  const list = listPath({ state: "FAILED", error: code, failed: tool ?? "", from });
  return (
    <li class="cause">
      <span class="cause-count text-bad">{count.toLocaleString("en")}</span>
      <div class="cause-text">
        <p>
          <strong>
            <Plain text={tool ?? "The execution itself"} />
          </strong>{" "}
          <code class="text-bad" title={meaning ?? ""}>
            {code}
          </code>
        </p>
        {cause && <p class="cut">{plain(cause.replaceAll("`", ""))}</p>}
        <p class="faint">
          {count > 1 && <span title={formatDateTime(firstAt)}>first {formatAge(firstAt, now)}, </span>}
          <span title={formatDateTime(lastAt)}>last {formatAge(lastAt, now)}</span> ·{" "}
          <a href={`/executions/${sampleExecutionId}`}>newest example</a> · <a href={list}>{count === 1 ? "show it" : `show all ${countText(count, "execution")}`}</a>
        </p>
      </div>
      {/* The API has no filter for executions that failed outside a step. */}
      {tool !== null && (
        <ActButton needs="bulkControl" onClick={onRetry}>
          <Icon name="retry" />
          Retry all
        </ActButton>
      )}
    </li>
  );
}
