/** The first page: whether anything needs a person, what failed and why, and how executions went over time. */

import { useMemo } from "preact/hooks";

import { useAsk } from "../api/client";
import { Overview, OverviewCounts, type OverviewResult } from "../api/generated";
import { listPath } from "../lists/filter";
import { bucketsOf, Chart, failureRateText, totalOf } from "../overview/chart";
import { FailureGroups } from "../overview/failures";
import { FirstRun } from "../overview/first-run";
import { useOneOf } from "../router";
import { Refused } from "../ui/fault";
import { Icon, type IconName } from "../ui/icons";
import { Loading, useTitle } from "../ui/page";
import { formatDuration, oneUnitSpan, useNow } from "../ui/time";
import { countText } from "../ui/words";

const TILE_POLL = 3_000;
const COUNT_POLL = 10_000;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The periods, with the length of their intervals. */
const PERIODS = {
  "24h": { name: "24 hours", bucketMs: HOUR, length: 24 },
  "1h": { name: "1 hour", bucketMs: 2 * MINUTE, length: 30 },
  "7d": { name: "7 days", bucketMs: 6 * HOUR, length: 28 },
  "30d": { name: "30 days", bucketMs: DAY, length: 30 },
} as const;

export function OverviewPage() {
  useTitle("Overview");
  const now = useNow(10_000);
  // The start changes once a minute. Otherwise each answer would have other variables, and none would be current.
  const dayAgo = new Date(Math.floor(now / MINUTE) * MINUTE - DAY).toISOString();
  const asked = useAsk(Overview, { failed: { state: ["FAILED"], parts: false, from: dayAgo } }, TILE_POLL);
  const isNew = asked.data?.requests.totalCount === 0;
  return (
    <div class="page overview">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Overview</h1>
          <a class="button primary" href="/new">
            <Icon name="plus" />
            New plan
          </a>
        </div>
      </header>
      <div class="scroll">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {!asked.data && !asked.error && <Loading />}
        {isNew && <FirstRun />}
        {asked.data && !isNew && <Tiles data={asked.data} dayAgo={dayAgo} now={now} />}
        {asked.data && !isNew && <History now={now} />}
      </div>
    </div>
  );
}

function Tiles({ data, dayAgo, now }: { data: OverviewResult; dayAgo: string; now: number }) {
  const { needy, failed, running, resting } = data;
  return (
    <ul class="tiles" aria-label="Executions now">
      <Tile name="Needs you" count={needy.totalCount} tone="waiting" icon="person" href="/approvals" note="approvals, decisions, signals, paused" />
      <Tile name="Failed in 24 h" count={failed.totalCount} tone="bad" icon="close" href={listPath({ state: "FAILED", from: dayAgo })} note="executions created in the last day" />
      <Tile
        name="Running and retrying"
        count={running.totalCount + resting.totalCount}
        tone="running"
        icon="play"
        href={listPath({ state: "IN_PROGRESS,WAITING,COMPENSATING", needs: "none" })}
        note={`${running.totalCount.toLocaleString("en")} running, ${resting.totalCount.toLocaleString("en")} waiting for a retry, a time or a limit`}
      />
      <ScheduledTile pending={data.pending} now={now} />
    </ul>
  );
}

function ScheduledTile({ pending, now }: { pending: OverviewResult["pending"]; now: number }) {
  const starts = pending.nodes.flatMap(({ startAt }) => (startAt !== null && Date.parse(startAt) > now ? [Date.parse(startAt)] : [])).sort((a, b) => a - b);
  // The answer has at most 200 executions. Above this number, the tile counts all that have not started.
  const count = pending.totalCount > pending.nodes.length ? pending.totalCount : starts.length;
  const [next] = starts;
  return <Tile name="Scheduled" count={count} tone="idle" icon="clock" href="/scheduled" note={next === undefined ? "starts at a later time" : `next in ${oneUnitSpan(next - now)}`} />;
}

interface TileProps {
  name: string;
  count: number;
  tone: string;
  icon: IconName;
  href: string;
  note: string;
}

function Tile({ name, count, tone, icon, href, note }: TileProps) {
  return (
    <li>
      <a class={`tile${count > 0 ? ` tone-${tone}` : ""}`} href={href}>
        <span class="tile-name">
          <Icon name={icon} />
          {name}
        </span>
        <strong class="tile-count">{count.toLocaleString("en")}</strong>
        <span class="faint">{note}</span>
      </a>
    </li>
  );
}

const PERIOD_NAMES = ["24h", "1h", "7d", "30d"] as const;

function History({ now }: { now: number }) {
  const [period, setPeriod] = useOneOf("period", PERIOD_NAMES);
  const { bucketMs, length } = PERIODS[period];
  const begin = (Math.floor(now / bucketMs) - length + 1) * bucketMs;
  const from = new Date(begin).toISOString();
  const asked = useAsk(OverviewCounts, { filter: { from }, failed: { from, state: ["FAILED"] }, bucketMs }, COUNT_POLL);
  // Until the answer for another period arrives, the intervals of the old answer do not fit.
  const counts = asked.isCurrent ? asked.data : null;
  const buckets = useMemo(() => (counts ? bucketsOf(counts, begin, length, bucketMs) : []), [counts, begin, length, bucketMs]);
  const total = buckets.reduce((sum, bucket) => sum + totalOf(bucket), 0);
  const p95 = counts?.completed.find(({ keys }) => keys[0] === "COMPLETED")?.p95Ms ?? null;
  const rate = failureRateText(buckets);
  return (
    <>
      <section class="overview-part" aria-labelledby="over-time">
        <div class="overview-head">
          <h2 id="over-time">Executions over time</h2>
          <span class="grow" />
          <div class="switch" role="group" aria-label="Period">
            {(["1h", "24h", "7d", "30d"] as const).map((name) => (
              <button key={name} type="button" aria-pressed={name === period} onClick={() => setPeriod(name)}>
                {PERIODS[name].name}
              </button>
            ))}
          </div>
        </div>
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {!counts && !asked.error && <Loading />}
        {counts && (
          <>
            <p class="facts" role="status">
              <span>{countText(total, "execution")}</span>
              {rate !== "" && <span class={rate === "0 %" ? "" : "text-bad"}>failure rate {rate}</span>}
              {p95 !== null && <span>p95 {formatDuration(p95)} (completed)</span>}
            </p>
            {total === 0 ? <p class="faint overview-none">No executions in this period.</p> : <Chart buckets={buckets} bucketMs={bucketMs} linkOf={({ at }) => listPath({ from: new Date(at).toISOString(), to: new Date(at + bucketMs).toISOString() })} />}
          </>
        )}
      </section>
      {counts && (
        <section class="overview-part" aria-labelledby="by-cause">
          <div class="overview-head">
            <h2 id="by-cause">Failures by cause</h2>
          </div>
          <FailureGroups counts={counts} from={from} now={now} />
        </section>
      )}
    </>
  );
}
