/** The use of models, with their cost, and of tools. */

import { useAsk } from "../api/client";
import { ToolUsageAll } from "../api/generated";
import { sumOf, useMetrics, type Metrics } from "../api/metrics";
import { Refused } from "../ui/fault";
import { Loading, useTitle } from "../ui/page";
import { formatAge, formatDateTime, formatDuration, useNow } from "../ui/time";

const POLL_INTERVAL = 5_000;
const MAX_TOOLS = 200;

export function UsagePage() {
  useTitle("Usage");
  return (
    <div class="page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Usage</h1>
        </div>
      </header>
      <div class="scroll">
        <ModelUsage />
        <ToolUsage />
      </div>
    </div>
  );
}

function ModelUsage() {
  const { metrics, error } = useMetrics(POLL_INTERVAL);
  return (
    <section class="overview-part" aria-label="Models">
      <h2>Models</h2>
      <p class="faint">Of this server since its start. The cost is in the currency of <code>price</code> in the configuration.</p>
      {error && <p class="warning">{error}</p>}
      {!metrics && !error && <Loading />}
      {metrics && <ModelTable metrics={metrics} />}
    </section>
  );
}

function ModelTable({ metrics }: { metrics: Metrics }) {
  const names = [...new Set((metrics.get("faber_model_requests_total") ?? []).map(({ labels }) => labels.model ?? ""))].sort();
  if (names.length === 0) return <p class="faint">No model was asked. Without a model, the offline planner makes plans.</p>;
  const count = (name: string, labels: Record<string, string>) => sumOf(metrics, name, labels).toLocaleString("en");
  return (
    <div class="table-frame">
      <table class="plain wide">
        <thead>
          <tr>
            {["Model", "Answered", "Failed", "Input tokens", "Output tokens", "Cost"].map((name, at) => (
              <th key={name} scope="col" class={at > 0 ? "right" : ""}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {names.map((model) => (
            <tr key={model}>
              <td class="mono">{model}</td>
              <td class="right">{count("faber_model_requests_total", { model, outcome: "answered" })}</td>
              <td class="right">{count("faber_model_requests_total", { model, outcome: "failed" })}</td>
              <td class="right">{count("faber_model_tokens_total", { model, type: "input" })}</td>
              <td class="right">{count("faber_model_tokens_total", { model, type: "output" })}</td>
              <td class="right">{metrics.has("faber_model_cost_total") ? sumOf(metrics, "faber_model_cost_total", { model }).toFixed(4) : "no price"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ToolUsage() {
  const asked = useAsk(ToolUsageAll, {}, POLL_INTERVAL);
  const now = useNow(10_000);
  const tools = [...(asked.data?.toolUsage ?? [])].filter(({ calls }) => calls > 0).sort((a, b) => b.calls - a.calls);
  return (
    <section class="overview-part" aria-label="Tools">
      <h2>Tools</h2>
      <p class="faint">Calls in plans and outside plans, on all nodes.</p>
      {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
      {!asked.data && !asked.error && <Loading />}
      {asked.data && tools.length === 0 && <p class="faint">No tool was called.</p>}
      {tools.length > 0 && (
        <div class="table-frame">
          <table class="plain wide">
            <thead>
              <tr>
                {["Tool", "Calls", "Failed", "p50", "p99", "Last call"].map((name, at) => (
                  <th key={name} scope="col" class={at > 0 ? "right" : ""}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {tools.slice(0, MAX_TOOLS).map((tool) => (
                <tr key={tool.qualifiedName}>
                  <td>
                    <a class="mono" href={`/tools/${encodeURIComponent(tool.qualifiedName)}`}>
                      {tool.qualifiedName}
                    </a>
                  </td>
                  <td class="right">{tool.calls.toLocaleString("en")}</td>
                  <td class={tool.failures > 0 ? "right text-bad" : "right"}>{tool.failures.toLocaleString("en")}</td>
                  <td class="right">{tool.p50Ms === null ? "" : formatDuration(tool.p50Ms)}</td>
                  <td class="right">{tool.p99Ms === null ? "" : formatDuration(tool.p99Ms)}</td>
                  <td class="right faint" title={tool.lastCalledAt ? formatDateTime(tool.lastCalledAt) : ""}>
                    {tool.lastCalledAt && formatAge(tool.lastCalledAt, now)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {tools.length > MAX_TOOLS && <p class="faint">The {MAX_TOOLS} tools with the most calls of {tools.length}.</p>}
    </section>
  );
}
