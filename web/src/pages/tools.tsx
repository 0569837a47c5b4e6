/** The page of the tools: toolsets with their switches, all tools, and a search that selects tools for a query. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, ask, useAsk } from "../api/client";
import { ActivateToolSets, Collisions, DeactivateToolSets, SelectTools, ToolSets, type SelectionCriterion, type ToolSetsResult } from "../api/generated";
import { clampNumber, useOneOf, useParam } from "../router";
import { ToolDetail } from "../tools/detail";
import { ActButton } from "../ui/act-button";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice, Empty, Loading, Tabs, useTitle } from "../ui/page";
import { SearchBox } from "../ui/search-box";
import { formatDuration } from "../ui/time";
import { Hint } from "../ui/hint";
import { Score } from "../ui/score";
import { Windowed } from "../ui/virtual";

const TABS = ["tools", "selection", "collisions"] as const;

export function ToolsPage({ name }: { name: string | null }) {
  const [tab, setTab] = useOneOf("view", TABS);
  useTitle(name ?? "Tools");
  return (
    <div class={`page tools-page${name ? " has-inspector" : ""}`}>
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Tools</h1>
        </div>
      </header>
      <Tabs label="About tools" tabs={TABS} shown={tab} onShow={setTab} names={{ tools: "Toolsets" }} />
      <div class="split">
        <div class="pane scroll" role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`}>
          {tab === "tools" && <Sets shown={name} />}
          {tab === "selection" && <Selection />}
          {tab === "collisions" && <CollisionTable />}
        </div>
        {name && <ToolDetail key={name} name={name} />}
      </div>
    </div>
  );
}

type Set = ToolSetsResult["toolSets"][number];

function Sets({ shown }: { shown: string | null }) {
  const asked = useAsk(ToolSets, {}, 3_000);
  const [search, setSearch] = useParam("search");
  const [error, setError] = useState<ApiError | null>(null);
  const usage = useMemo(() => new Map((asked.data?.toolUsage ?? []).map((it) => [it.qualifiedName, it])), [asked.data]);
  const words = useMemo(() => search.toLowerCase().split(/\s+/).filter(Boolean), [search]);
  const found = useMemo(() => (asked.data?.toolSets ?? []).map((set) => ({ set, tools: set.tools.filter((it) => fits(it, words)) })), [asked.data, words]);
  if (asked.error && !asked.data) return <Refused error={asked.error} />;
  if (!asked.data) return <Loading />;
  const turn = async (set: Set) => {
    setError(null);
    try {
      const change = set.active
        ? (await ask(DeactivateToolSets, { names: [set.name] })).deactivateToolSets
        : (await ask(ActivateToolSets, { names: [set.name] })).activateToolSets;
      if (change.refused.length > 0) setError(new ApiError(`the toolset \`${set.name}\` is always switched on`, "INVALID_ARGUMENT"));
      asked.refresh();
    } catch (error) {
      setError(error as ApiError);
    }
  };
  return (
    <>
      <div class="pane-bar">
        <SearchBox label="Search tools" value={search} onSearch={setSearch} placeholder="Name, description, example" />
      </div>
      {error && <Refused error={error} />}
      <div>
        {found.map(({ set, tools }) => {
          if (words.length > 0 && tools.length === 0) return null;
          return <SetCard key={set.name} set={set} tools={tools} usage={usage} shown={shown} isOpen={words.length > 0 || set.active} onTurn={() => turn(set)} />;
        })}
      </div>
    </>
  );
}

function fits({ qualifiedName, description, examples }: Set["tools"][number], words: readonly string[]): boolean {
  const text = [qualifiedName, description, ...examples].join(" ").toLowerCase();
  return words.every((it) => text.includes(it));
}

interface CardProps {
  set: Set;
  tools: Set["tools"];
  usage: Map<string, ToolSetsResult["toolUsage"][number]>;
  shown: string | null;
  isOpen: boolean;
  onTurn: () => void;
}

function SetCard({ set, tools, usage, shown, isOpen: given, onTurn }: CardProps) {
  const [isOpen, setOpen] = useState(given);
  useEffect(() => setOpen(given), [given]);
  return (
    <section class="set" aria-label={`Toolset ${set.name}`}>
      <header class="set-head">
        <button type="button" class="set-name" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <span class={`turn${isOpen ? " is-open" : ""}`}>
            <Icon name="chevron" />
          </span>
          <h2>{set.name}</h2>
          <span class="count">{set.tools.length}</span>
        </button>
        <span class="faint cut set-about">{set.description}</span>
        <span class="tag">{set.source}</span>
        {set.status !== "ready" && <span class={`tag tone-${set.status === "failed" ? "bad" : "running"}`}>{set.status}</span>}
        <ActButton needs="activateToolSets" role="switch" aria-checked={set.active} aria-label={`Toolset ${set.name}`} class="toggle" onClick={onTurn}>
          <span />
        </ActButton>
      </header>
      {set.error && <p class="warning">{set.error}</p>}
      {isOpen && (
        <Windowed
          class="tool-rows"
          items={tools}
          row={(it, place) => {
            const used = usage.get(it.qualifiedName);
            return (
              <li key={it.qualifiedName} {...place}>
                <a class="tool-row" href={`/tools/${encodeURIComponent(it.qualifiedName)}`} {...(it.qualifiedName === shown ? { "aria-current": "true" as const } : {})}>
                  <span class="tool-name cut">{it.name}</span>
                  <span class="tool-about cut faint">{it.description}</span>
                  <span class={`effect effect-${it.effect.toLowerCase()}`}>{it.effect.toLowerCase()}</span>
                  <span class="tool-used faint right">
                    {used ? `${used.calls.toLocaleString("en")}${used.failures ? `, ${used.failures} failed` : ""}` : ""}
                  </span>
                  <span class="tool-latency faint right">{used?.p50Ms != null ? formatDuration(used.p50Ms) : ""}</span>
                </a>
              </li>
            );
          }}
        />
      )}
    </section>
  );
}

const CRITERIA: readonly (readonly [SelectionCriterion, string])[] = [
  ["HYBRID", "Meaning and words"],
  ["CENTROID", "Examples"],
  ["DESCRIPTION", "Descriptions"],
  ["LEXICAL", "Words"],
];

function Selection() {
  const [query, setQuery] = useParam("query");
  const [by, setBy] = useOneOf("by", ["HYBRID", "CENTROID", "DESCRIPTION", "LEXICAL"]);
  const [limit, setLimit] = useOneOf("limit", ["15", "5", "50"]);
  const asked = useAsk(SelectTools, query === "" ? null : { query, by, limit: Number(limit), activeOnly: false });
  const matches = query === "" ? [] : (asked.data?.selectTools ?? []);
  const most = Math.max(0.000_1, ...matches.map((it) => it.score));
  return (
    <>
      <div class="pane-bar">
        <SearchBox label="Query" value={query} onSearch={setQuery} placeholder="What should the tool do?" />
        <Choice label="Criterion" value={by} options={CRITERIA} onChange={setBy} />
        <Choice label="At most" value={limit} options={["5", "15", "50"].map((it) => [it, `${it} tools`] as const)} onChange={setLimit} />
      </div>
      {asked.error && <Refused error={asked.error} />}
      {query === "" && <Empty title="Which tools would a query find?">Type a query to see the score of each tool, and which tools are hits.</Empty>}
      {query !== "" && asked.isLoading && <Loading />}
      {query !== "" && !asked.isLoading && !asked.error && matches.length === 0 && (
        <Empty title="No tool fits">
          {by === "CENTROID" ? "This criterion selects only tools with examples." : by === "LEXICAL" ? "No tool has any of these words." : "There is no tool to choose from."}
        </Empty>
      )}
      {matches.length > 0 && (
        <table class="plain wide">
          <thead>
            <tr>
              <th scope="col">Tool</th>
              <th scope="col">Score</th>
              <th scope="col">
                <span class="with-hint">
                  Hit
                  <Hint about="a hit">A tool is a hit if the query is at least as similar to its examples as the least similar of these examples, plus selection.margin. The line in the bar is this hit threshold.</Hint>
                </span>
              </th>
              <th scope="col">Least similar example</th>
            </tr>
          </thead>
          <tbody>
            {matches.map((it) => (
              <tr key={it.tool.qualifiedName} class={it.hit ? "" : "is-miss"}>
                <td>
                  <a class="mono" href={`/tools/${encodeURIComponent(it.tool.qualifiedName)}`}>
                    {it.tool.qualifiedName}
                  </a>
                  {!it.tool.active && <span class="tag">off</span>}
                </td>
                <td>
                  <Score value={it.score} most={most} line={it.leastSimilar} />
                </td>
                <td>{it.hit ? <span class="text-good">hit</span> : <span class="faint">no</span>}</td>
                <td class="faint">{it.leastSimilarExample && `${it.leastSimilar?.toFixed(3)} “${it.leastSimilarExample}”`}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

/** Maximum number of pairs that are shown. */
const MAX_PAIRS = 500;

function CollisionTable() {
  const [threshold, setThreshold] = useParam("threshold", "0.3");
  const least = clampNumber(threshold, [0, 1], 0);
  const asked = useAsk(Collisions, { threshold: least, similarity: "DOT" });
  const pairs = [...(asked.data?.toolCollisions ?? [])].sort((a, b) => b.similarity - a.similarity);
  return (
    <>
      <div class="pane-bar">
        <label class="slider">
          <span>Similar by at least {least.toFixed(2)}</span>
          <input type="range" min="0" max="1" step="0.05" value={least} onChange={(event) => setThreshold(event.currentTarget.value)} />
        </label>
        {asked.data && (
          <span class="faint" role="status">
            {pairs.length.toLocaleString("en")} tool {pairs.length === 1 ? "pair" : "pairs"} with similar examples
            {pairs.length > MAX_PAIRS && `, of which the ${MAX_PAIRS} most similar are shown`}
          </span>
        )}
      </div>
      {asked.error && <Refused error={asked.error} />}
      {!asked.data && !asked.error && <Loading />}
      {asked.data && pairs.length === 0 && <Empty title="No two tools collide">Tools without examples are not compared.</Empty>}
      {pairs.length > 0 && (
        <table class="plain wide">
          <thead>
            <tr>
              <th scope="col">One</th>
              <th scope="col">Other</th>
              <th scope="col">Similarity</th>
            </tr>
          </thead>
          <tbody>
            {pairs.slice(0, MAX_PAIRS).map((it) => (
              <tr key={`${it.a} ${it.b}`}>
                {[it.a, it.b].map((name) => (
                  <td key={name}>
                    <a class="mono" href={`/tools/${encodeURIComponent(name)}${location.search}`}>
                      {name}
                    </a>
                  </td>
                ))}
                <td>
                  <Score value={it.similarity} most={1} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
