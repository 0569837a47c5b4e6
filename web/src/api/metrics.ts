/** Reads the metrics of the server, in the text format of Prometheus. */

import { useEffect, useState } from "preact/hooks";

import { PREFIX } from "../prefix";
import { useCell } from "./cell";
import { PAGE_HEADER, returns, token } from "./connection";

/** One value of a metric, with its labels. */
export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = ReadonlyMap<string, readonly Sample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES: Record<string, string> = { n: "\n" };

export function parseMetrics(text: string): Metrics {
  const metrics = new Map<string, Sample[]>();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) continue;
    const pairs = [...labels.matchAll(LABEL)].map(([, key, written]) => [key, written!.replace(/\\(.)/g, (_, letter: string) => ESCAPES[letter] ?? letter)]);
    metrics.set(name, [...(metrics.get(name) ?? []), { labels: Object.fromEntries(pairs), value: Number(value) }]);
  }
  return metrics;
}

/** Returns the sum of the samples of a metric that have these labels. */
export function sumOf(metrics: Metrics, name: string, labels: Record<string, string> = {}): number {
  const samples = metrics.get(name) ?? [];
  return samples.filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value)).reduce((sum, sample) => sum + sample.value, 0);
}

/** Reads the metrics while a component is shown. The error is the reason why they cannot be read. */
export function useMetrics(poll: number): { metrics: Metrics | null; error: string | null } {
  const epoch = useCell(returns);
  const [state, setState] = useState<{ metrics: Metrics | null; error: string | null }>({ metrics: null, error: null });
  useEffect(() => {
    const gone = new AbortController();
    const load = async () => {
      const secret = token();
      const headers: Record<string, string> = { ...PAGE_HEADER, ...(secret ? { authorization: `Bearer ${secret}` } : {}) };
      try {
        const answer = await fetch(`${PREFIX}/metrics`, { headers, cache: "no-store", signal: gone.signal });
        if (answer.ok) setState({ metrics: parseMetrics(await answer.text()), error: null });
        else setState({ metrics: null, error: `The server does not show its metrics: ${answer.status} ${answer.statusText}` });
      } catch {
        // The page already shows that the server cannot be reached.
      }
    };
    void load();
    const timer = setInterval(() => document.hidden || void load(), poll);
    return () => {
      gone.abort();
      clearInterval(timer);
    };
  }, [poll, epoch]);
  return state;
}
