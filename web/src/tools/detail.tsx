/** The panel about a tool: its schemas, its usage, its calls, and a form to call it. */

import { useState } from "preact/hooks";

import { ApiError, ask, useAsk } from "../api/client";
import { CallTool, ToolOne, type CallToolResult, type Json } from "../api/generated";
import { go } from "../router";
import { ActButton } from "../ui/act-button";
import { Fault, Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Hint } from "../ui/hint";
import { JsonView } from "../ui/json";
import { Loading } from "../ui/page";
import { formatAge, formatDateTime, serverNow, formatDuration } from "../ui/time";
import { Section } from "../execution/panel";
import { Fields, isSchema } from "./form";

export function ToolDetail({ name }: { name: string }) {
  const asked = useAsk(ToolOne, { name });
  const tool = asked.data?.tool;
  const close = () => go(`/tools${location.search}`);
  return (
    <aside class="inspector" aria-label={`Tool ${name}`}>
      <header class="inspector-head">
        <div class="inspector-title">
          <h2 class="cut">{tool?.name ?? name}</h2>
          <button type="button" class="ghost icon-only" aria-label="Close the tool" onClick={close}>
            <Icon name="close" />
          </button>
        </div>
        {tool && (
          <p class="facts">
            <span class="mono">{tool.qualifiedName}</span>
            <span class={`effect effect-${tool.effect.toLowerCase()}`}>{tool.effect.toLowerCase()}</span>
            <Hint about="an effect">
              The effect says what a second call does. <em>read</em>: nothing. <em>idempotent</em>: the same as the first call. <em>once</em>: it can do harm, so Faber never repeats a call whose outcome is unknown.
            </Hint>
            <span>{tool.source}</span>
            {!tool.active && <span class="tag">off</span>}
          </p>
        )}
      </header>
      <div class="inspector-body">
        {asked.error && !tool && <Refused error={asked.error} />}
        {asked.data && !tool && <p>There is no such tool.</p>}
        {!asked.data && !asked.error && <Loading />}
        {tool && (
          <>
            <p class="tool-description">{tool.description}</p>
            <Section title="Try it">
              <Try name={tool.qualifiedName} schema={tool.inputSchema} isReady={tool.active && tool.callable} effect={tool.effect} onDone={asked.refresh} />
            </Section>
            {tool.examples.length > 0 && (
              <Section title="Examples">
                <ul class="examples">
                  {tool.examples.slice(0, 50).map((it) => (
                    <li key={it}>{it}</li>
                  ))}
                </ul>
              </Section>
            )}
            <Section title="Usage">
              <dl class="rules">
                <div>
                  <dt>Calls</dt>
                  <dd>
                    {tool.usage.calls.toLocaleString("en")}
                    {tool.usage.failures > 0 && `, ${tool.usage.failures.toLocaleString("en")} failed`}
                  </dd>
                </div>
                {tool.usage.p50Ms !== null && (
                  <div>
                    <dt>Time</dt>
                    <dd>
                      p50 {formatDuration(tool.usage.p50Ms)}
                      {tool.usage.p99Ms !== null && ` · p99 ${formatDuration(tool.usage.p99Ms)}`}
                    </dd>
                  </div>
                )}
                {tool.usage.lastCalledAt && (
                  <div>
                    <dt>Last</dt>
                    <dd title={formatDateTime(tool.usage.lastCalledAt)}>{formatAge(tool.usage.lastCalledAt, serverNow())}</dd>
                  </div>
                )}
              </dl>
              {(asked.data?.toolFollowers.length ?? 0) > 0 && (
                <p class="faint">
                  Usually followed by{" "}
                  {asked.data!.toolFollowers.map((it) => (
                    <a key={it.toolName} class="mono follower" href={`/tools/${encodeURIComponent(it.toolName)}`}>
                      {it.toolName}
                    </a>
                  ))}
                </p>
              )}
            </Section>
            <Section title="Parameters' schema">
              <JsonView value={tool.inputSchema} label="schema of the parameters" open={2} />
            </Section>
            {tool.outputSchema !== null && (
              <Section title="Output's schema">
                <JsonView value={tool.outputSchema} label="schema of the output" open={1} />
              </Section>
            )}
            {(asked.data?.toolHistory.length ?? 0) > 0 && (
              <Section title="Calls outside plans">
                <ul class="items">
                  {asked.data!.toolHistory.map((it) => (
                    <li key={it.callId}>
                      <details>
                        <summary>
                          <span class={it.status === "success" ? "text-good" : "text-bad"}>{it.status}</span>
                          <span class="faint">{formatDuration(it.durationMs)}</span>
                          <span class="faint">{formatAge(it.at, serverNow())}</span>
                        </summary>
                        <JsonView value={it.parameters} label="parameters of the call" open={1} />
                        {it.error ? <Fault {...errorOf(it.error)} /> : <JsonView value={it.result} label="result of the call" open={1} />}
                      </details>
                    </li>
                  ))}
                </ul>
              </Section>
            )}
          </>
        )}
      </div>
    </aside>
  );
}

/** Splits the text of a failed call, `code: message`, into its parts. */
function errorOf(text: string): { code: string; message: string } {
  const found = /^([a-z_]+(?:\.[a-z_]+)+): /.exec(text);
  return { code: found?.[1] ?? "", message: text.slice(found?.[0].length ?? 0) };
}

interface TryProps {
  name: string;
  schema: Json;
  isReady: boolean;
  effect: string;
  onDone: () => void;
}

function Try({ name, schema, isReady, effect, onDone }: TryProps) {
  const [value, setValue] = useState<Json | undefined>({});
  const [result, setResult] = useState<CallToolResult["callTool"] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  if (!isReady) return <p class="faint">Its toolset is inactive, or the tool has no `run`.</p>;
  const call = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setResult((await ask(CallTool, { name, parameters: value ?? {} })).callTool);
      onDone();
    } catch (error) {
      setError(error as ApiError);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={call}>
      <Fields schema={isSchema(schema) ? schema : {}} root={isSchema(schema) ? schema : {}} value={value} onValue={setValue} />
      <div class="buttons">
        <ActButton needs="callTool" type="submit" class="primary" disabled={isBusy}>
          <Icon name="play" />
          {isBusy ? "Calling…" : "Call tool"}
        </ActButton>
        {effect !== "READ" && <span class="faint">Makes a real call; cannot be undone.</span>}
      </div>
      {error && <Refused error={error} />}
      {result && (
        <div class="try-result" role="status">
          <p class="facts">
            <span class={result.status === "success" ? "text-good" : "text-bad"}>{result.status}</span>
            <span>{formatDuration(result.durationMs)}</span>
          </p>
          {result.error ? <Fault {...errorOf(result.error)} /> : <JsonView value={result.result} label="result" />}
        </div>
      )}
    </form>
  );
}
