/** The page of a new installation, with examples that run at once. */

import { useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { CreatePlan, ExecutePlan, RunQuery, type PlanInput } from "../api/generated";
import { go } from "../router";
import { ActButton } from "../ui/act-button";
import { Refused, toApiError } from "../ui/fault";
import { Icon } from "../ui/icons";

interface Example {
  title: string;
  about: string;
  /** Starts the example, and returns the id of its execution. */
  run: () => Promise<string>;
}

async function runPlan(input: PlanInput): Promise<string> {
  const { plan } = (await ask(CreatePlan, { input })).createPlan;
  return (await ask(ExecutePlan, { id: plan!.planId })).executePlan.executionId;
}

const QUERY = "Create author Alice with email alice@example.com, then create blog by Alice titled Hello about the sea";

const EXAMPLES: readonly Example[] = [
  {
    title: "Plan and run a sentence",
    about: `“${QUERY}.” Faber chooses the tools, fills in their parameters and runs them.`,
    run: async () => (await ask(RunQuery, { query: QUERY })).run.executionId,
  },
  {
    title: "Retry a call that fails",
    about: "A loop over three items, and a step that fails once and is tried again.",
    run: () =>
      runPlan({
        query: "Example: a loop and a retry",
        tools: [
          { id: "list", name: "flow.echo", parameters: { items: ["one", "two", "three"] } },
          { id: "each", name: "flow.echo", parameters: { item: "{{item}}" }, forEach: "{{list.items}}" },
          { id: "flaky", name: "flow.fail", parameters: { message: "not this time", retryable: true, times: 1 }, dependsOn: "list", retry: { maxAttempts: 3, backoffMs: 1_000 } },
        ],
      }),
  },
  {
    title: "Ask a person first",
    about: "A step that starts only after you approve it. It appears under Approvals.",
    run: () =>
      runPlan({
        query: "Example: a step that needs an approval",
        tools: [
          { id: "draft", name: "flow.echo", parameters: { text: "Dear reader" } },
          { id: "publish", name: "flow.echo", parameters: { text: "{{draft.text}}" }, requiresApproval: true },
        ],
      }),
  },
];

export function FirstRun() {
  const [busy, setBusy] = useState<Example | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const start = async (example: Example) => {
    setBusy(example);
    setError(null);
    try {
      go(`/executions/${await example.run()}`);
    } catch (error) {
      setError(toApiError(error));
      setBusy(null);
    }
  };
  return (
    <section class="overview-part" aria-labelledby="first-run">
      <div class="overview-head">
        <h2 id="first-run">No requests yet</h2>
      </div>
      <p class="faint">
        Try an example, <a href="/new">create a plan</a>, or look at <a href="/tools">the tools</a>. The examples call no other system.
      </p>
      {error && <Refused error={error} />}
      <ul class="examples-run">
        {EXAMPLES.map((example) => (
          <li key={example.title} class="example-run">
            <h3>{example.title}</h3>
            <p class="faint">{example.about}</p>
            <ActButton needs="executePlan" disabled={busy !== null} onClick={() => void start(example)}>
              <Icon name="play" />
              {busy === example ? "Starting…" : "Run it"}
            </ActButton>
          </li>
        ))}
      </ul>
      <p class="faint">On the command line:</p>
      <pre class="code">faber run "Create author Alice with email alice@test.com"</pre>
    </section>
  );
}
