/** The executions over time, as bars of outcomes with a line for the 95th percentile of their durations. */

import { useMemo } from "preact/hooks";

import type { ExecutionState, OverviewCountsResult } from "../api/generated";
import { formatDuration } from "../ui/time";

/** Executions of one interval of time. */
export interface Bucket {
  /** Start of the interval, in milliseconds. */
  at: number;
  completed: number;
  failed: number;
  cancelled: number;
  open: number;
  p95Ms: number | null;
}

const OUTCOMES = [
  ["failed", "bad", "Failed"],
  ["cancelled", "stopped", "Cancelled"],
  ["open", "running", "Not finished"],
  ["completed", "good", "Completed"],
] as const;

type Outcome = (typeof OUTCOMES)[number][0];

function outcomeOf(state: ExecutionState): Outcome {
  if (state === "COMPLETED") return "completed";
  if (state === "FAILED") return "failed";
  return state === "CANCELLED" ? "cancelled" : "open";
}

/** Returns a bucket for each interval, oldest first, with zeros where nothing happened. */
export function bucketsOf({ outcomes, times }: Pick<OverviewCountsResult, "outcomes" | "times">, from: number, length: number, bucketMs: number): Bucket[] {
  const buckets = Array.from({ length }, (_, n): Bucket => ({ at: from + n * bucketMs, completed: 0, failed: 0, cancelled: 0, open: 0, p95Ms: null }));
  const find = (time: string | undefined) => buckets[Math.round((Date.parse(time ?? "") - from) / bucketMs)];
  for (const { keys, count } of outcomes) {
    const bucket = find(keys[0]);
    if (bucket) bucket[outcomeOf(keys[1] as ExecutionState)] += count;
  }
  for (const { keys, p95Ms } of times) {
    const bucket = find(keys[0]);
    if (bucket) bucket.p95Ms = p95Ms;
  }
  return buckets;
}

export function totalOf({ completed, failed, cancelled, open }: Bucket): number {
  return completed + failed + cancelled + open;
}

/** Returns the share of failed executions among the finished ones, as text. Empty if none has finished. */
export function failureRateText(buckets: readonly Bucket[]): string {
  const failed = buckets.reduce((sum, bucket) => sum + bucket.failed, 0);
  const finished = buckets.reduce((sum, bucket) => sum + bucket.failed + bucket.completed, 0);
  if (finished === 0) return "";
  const percent = (failed / finished) * 100;
  return `${percent > 0 && percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

const WIDTH = 1_000;
const HEIGHT = 150;

interface Props {
  buckets: readonly Bucket[];
  bucketMs: number;
  /** Returns the address of the list with the executions of an interval. */
  linkOf: (bucket: Bucket) => string;
}

export function Chart({ buckets, bucketMs, linkOf }: Props) {
  const most = Math.max(1, ...buckets.map(totalOf));
  const slowest = Math.max(1, ...buckets.map((bucket) => bucket.p95Ms ?? 0));
  const step = WIDTH / buckets.length;
  const line = useMemo(() => lineOf(buckets, step, slowest), [buckets, step, slowest]);
  return (
    <figure class="chart">
      <div class="chart-frame">
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          {buckets.map((bucket, n) => (
            <Bar key={bucket.at} bucket={bucket} x={n * step} width={step} most={most} />
          ))}
          {line && <path class="chart-line" d={line} />}
        </svg>
        <div class="chart-links">
          {buckets.map((bucket) => (
            <BucketLink key={bucket.at} bucket={bucket} bucketMs={bucketMs} href={linkOf(bucket)} />
          ))}
        </div>
      </div>
      <div class="chart-axis faint" aria-hidden="true">
        <span>{formatMoment(buckets[0]?.at ?? 0, bucketMs)}</span>
        <span>{formatMoment(buckets[Math.floor(buckets.length / 2)]?.at ?? 0, bucketMs)}</span>
        <span>now</span>
      </div>
      <figcaption class="chart-key">
        {OUTCOMES.map(([name, tone, word]) => (
          <span key={name}>
            <i class={`ground-${tone}`} aria-hidden="true" />
            {word}
          </span>
        ))}
        <span>
          <i class="chart-line-key" aria-hidden="true" />
          p95 of the duration, at most {formatDuration(slowest)}
        </span>
      </figcaption>
    </figure>
  );
}

/** An interval without executions is no link, so that a keyboard reaches the others with fewer keys. */
function BucketLink({ bucket, bucketMs, href }: { bucket: Bucket; bucketMs: number; href: string }) {
  const total = totalOf(bucket);
  if (total === 0) return <span />;
  const parts = OUTCOMES.flatMap(([name, , word]) => (bucket[name] > 0 ? [`${bucket[name]} ${word.toLowerCase()}`] : []));
  const duration = bucket.p95Ms === null ? "" : `, p95 ${formatDuration(bucket.p95Ms)}`;
  const label = `${formatMoment(bucket.at, bucketMs)}: ${parts.join(", ")}${duration}`;
  return <a href={href} title={label} aria-label={label} />;
}

function Bar({ bucket, x, width, most }: { bucket: Bucket; x: number; width: number; most: number }) {
  let top = HEIGHT;
  return (
    <>
      {[...OUTCOMES].reverse().map(([name, tone]) => {
        const count = bucket[name];
        if (count === 0) return null;
        // Even one failure among thousands of executions must be visible.
        const height = Math.max(3, (count / most) * (HEIGHT - 10));
        top = Math.max(0, top - height);
        return <rect key={name} x={x + width * 0.12} y={top} width={width * 0.76} height={height} class={`fill-${tone}`} />;
      })}
    </>
  );
}

function lineOf(buckets: readonly Bucket[], step: number, slowest: number): string {
  let path = "";
  let isOpen = false;
  for (const [n, { p95Ms }] of buckets.entries()) {
    if (p95Ms !== null) path += `${isOpen ? "L" : "M"}${n * step + step * 0.2} ${HEIGHT - (p95Ms / slowest) * (HEIGHT - 10)}h${step * 0.6}`;
    isOpen = p95Ms !== null;
  }
  return path;
}

/** Formats the start of an interval: the time of day, or the day for long intervals. */
function formatMoment(at: number, bucketMs: number): string {
  const date = new Date(at);
  const day = date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  if (bucketMs >= 86_400_000) return day;
  const time = `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`;
  return bucketMs >= 3_600_000 ? `${day}, ${time}` : time;
}
