/** The page of the toolkit: its graph, and the recommendations for chosen actions. */

import { useMemo } from "preact/hooks";

import { useAsk } from "../api/client";
import { Recommended, ToolkitPage as ToolkitQuery, type ToolkitDrawn } from "../api/generated";
import { Graph } from "../graph/graph";
import { edgeKey, flat } from "../graph/scene";
import { clampNumber, useParam } from "../router";
import { Refused, RefusedPage } from "../ui/fault";
import { Empty, Loading, useTitle } from "../ui/page";
import { Hint } from "../ui/hint";
import { countText } from "../ui/words";

/** Poll interval of the toolkit, in milliseconds. */
const POLL_INTERVAL = 3_000;
/** Maximum number of hops that the user can choose. */
const MAX_HOPS = 6;
/** Separates names in the URL. Names cannot contain a line feed. */
const SEPARATOR = "\n";

export function ToolkitPage() {
  useTitle("Tool graph");
  const asked = useAsk(ToolkitQuery, {}, POLL_INTERVAL);
  const [wanted, setSelected] = useParam("node");
  const [chosen, setChosen] = useParam("actions");
  const [least, setThreshold] = useParam("threshold", "0.5");
  const [far, setHops] = useParam("hops", "0");
  const threshold = clampNumber(least, [0, 1], 0.5);
  const hops = Math.round(clampNumber(far, [0, MAX_HOPS], 0));
  const actions = chosen === "" ? [] : chosen.split(SEPARATOR);
  const near = useAsk(Recommended, actions.length > 0 ? { actions, threshold, hops } : null, POLL_INTERVAL);
  const found = actions.length > 0 ? near.data?.recommendSubgraph : undefined;
  const toolkit = asked.data?.toolkit;
  const scene = useMemo(() => (toolkit ? flat(toolkit.layout) : null), [toolkit]);
  const looks = useMemo(() => (toolkit ? looksOf(toolkit, found ?? null, actions) : []), [toolkit, found, chosen]);
  // Edges to tools are dashed, as in the drawings of the server.
  const edgeLooks = useMemo(
    () => new Map(toolkit?.edges.map((it) => [edgeKey(it), { note: it.score.toFixed(2), isDashed: it.kind === "call" }])),
    [toolkit],
  );
  const selected = scene?.nodes.some((it) => it.name === wanted) ? wanted : "";
  if (asked.error && !toolkit) return <RefusedPage title="Tool graph" error={asked.error} />;
  if (!toolkit || !scene) return <Loading isPage />;
  if (toolkit.actions.length + toolkit.tools.length === 0) {
    return (
      <div class="page">
        <header class="head">
          <h1 tabIndex={-1}>Tool graph</h1>
        </header>
        <Empty title="There is no toolkit yet">
          <p>It says which tools go with which actions. Name a file in the configuration:</p>
          <pre class="code">toolkit_files: [toolkit.yml]</pre>
        </Empty>
      </div>
    );
  }
  const turn = (action: string) => {
    const next = actions.includes(action) ? actions.filter((it) => it !== action) : [...actions, action];
    setChosen(next.join(SEPARATOR));
  };
  const edges = selected === "" ? [] : toolkit.edges.filter((it) => it.from === selected || it.to === selected);
  const about = toolkit.actions.find((it) => it.name === selected)?.description ?? toolkit.tools.find((it) => it.name === selected)?.description;
  return (
    <div class="page toolkit has-inspector">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Tool graph</h1>
          <Hint about="the tool graph">
            It says which tools serve which actions, and which actions can follow. A query then finds tools that no word of it names. The score is the weight of an edge, and a hop is one edge between actions.
          </Hint>
          <span class="grow" />
        </div>
        <div class="filters">
          <label class="slider">
            <span>Score of at least {threshold.toFixed(2)}</span>
            <input type="range" min="0" max="1" step="0.05" value={threshold} onInput={(event) => setThreshold(event.currentTarget.value)} />
          </label>
          <label class="slider">
            <span>Hops: {hops}</span>
            <input type="range" min="0" max={MAX_HOPS} step="1" value={hops} onInput={(event) => setHops(event.currentTarget.value)} />
          </label>
          {actions.length > 0 && (
            <button type="button" class="link" onClick={() => setChosen("")}>
              Clear
            </button>
          )}
        </div>
      </header>
      <div class="split">
        <div class="pane">
          <Graph
            drawing={scene}
            leadsRight={false}
            looks={looks}
            selected={selected === "" ? null : selected}
            onSelect={(it) => setSelected(it ?? "")}
            edgeLooks={edgeLooks}
            label={`The toolkit: ${countText(toolkit.actions.length, "action")} and ${countText(toolkit.tools.length, "tool")}`}
            describe={(it) => it}
          />
        </div>
        <aside class="inspector" aria-label="What is recommended">
          <div class="inspector-body">
            {selected !== "" && (
              <section class="section">
                <h2 class="cut">{selected}</h2>
                {about && <p>{about}</p>}
                <ul class="edges">
                  {edges.map((it) => (
                    <li key={edgeKey(it)}>
                      <button type="button" class="link" onClick={() => setSelected(it.from === selected ? it.to : it.from)}>
                        {it.from === selected ? `→ ${it.to}` : `← ${it.from}`}
                      </button>
                      <span class="faint">
                        {it.kind} {it.score.toFixed(2)}
                        {it.learned !== null && `, learned ${it.learned.toFixed(2)}`}
                      </span>
                    </li>
                  ))}
                </ul>
              </section>
            )}
            <section class="section">
              <h2>What should be done</h2>
              <ul class="checks">
                {toolkit.actions.map((it) => (
                  <li key={it.name}>
                    <label class="check" title={it.description}>
                      <input type="checkbox" checked={actions.includes(it.name)} onChange={() => turn(it.name)} />
                      {it.name}
                    </label>
                  </li>
                ))}
              </ul>
            </section>
            <section class="section" aria-live="polite">
              <h2>Recommended</h2>
              {near.error && <Refused error={near.error} />}
              {actions.length === 0 && <p class="faint">Choose an action to see which tools go with it.</p>}
              {found && (
                <>
                  <p class="faint">
                    {countText(found.actions.length, "action")}, {countText(found.tools.length, "tool")}
                  </p>
                  <ul class="plain-list">
                    {found.tools.map((it) => (
                      <li key={it.qualifiedName}>
                        <a class="mono" href={`/tools/${encodeURIComponent(it.qualifiedName)}`}>
                          {it.qualifiedName}
                        </a>
                      </li>
                    ))}
                  </ul>
                </>
              )}
            </section>
          </div>
        </aside>
      </div>
    </div>
  );
}

function looksOf(toolkit: ToolkitDrawn, found: { actions: { name: string }[]; layout: { nodes: { name: string }[] } } | null, chosen: string[]) {
  const actions = new Map(toolkit.actions.map((it) => [it.name, it.description]));
  const near = found && new Set(found.layout.nodes.map((it) => it.name));
  return toolkit.layout.nodes.map((it) => ({
    tone: actions.has(it.name) ? "action" : "tool",
    title: it.name,
    subtitle: "",
    note: chosen.includes(it.name) ? "chosen" : "",
    isStack: false,
    isDimmed: near !== null && !near.has(it.name),
  }));
}
