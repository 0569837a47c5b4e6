/** The search over everything, which `/` and Ctrl-K open. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { Find, type FindResult } from "../api/generated";
import { listPath, readLabels } from "../lists/filter";
import { isInlinePlan } from "../lists/inline";
import { go } from "../router";
import { restoreFocus } from "../ui/dialog";
import { Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Plain, plain } from "../ui/plain";
import { Dot, WORD } from "../ui/state";
import { formatAge, serverNow } from "../ui/time";
import { countText, placeOf } from "../ui/words";

/** Delay between the last key and the query, in milliseconds. */
const DELAY = 180;
const MAX_TOOLS = 6;
/** The server refuses a filter with another key. */
const LABEL_KEY = /^[a-z0-9._/-]{1,63}$/;

export function Palette({ pages, onClose }: { pages: readonly (readonly [string, string])[]; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [words, setWords] = useState("");
  useLayoutEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => restoreFocus(opener);
  }, []);
  useEffect(() => {
    const to = placeOf(text.trim());
    if (to) {
      onClose();
      return go(to);
    }
    const timer = setTimeout(() => setWords(text.trim()), DELAY);
    return () => clearTimeout(timer);
  }, [text]);
  const labels = readLabels(words);
  const hasLabels = labels !== null && Object.keys(labels).every((key) => LABEL_KEY.test(key));
  const asked = useAsk(Find, words === "" ? null : { words, byError: { errorText: words, parts: false }, byTool: { toolName: words, parts: false }, byLabel: hasLabels ? { labels, parts: false } : { executionIds: [] } });
  const found = words !== "" && asked.isCurrent && asked.data ? withoutInline(asked.data) : null;
  const fitting = useMemo(() => pages.filter(([, name]) => name.toLowerCase().includes(text.trim().toLowerCase())), [pages, text]);
  const links = () => [...(dialog.current?.querySelectorAll<HTMLAnchorElement>("a") ?? [])];
  const walk = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const all = links();
    const next = all.indexOf(document.activeElement as HTMLAnchorElement) + step;
    if (next < 0) dialog.current?.querySelector("input")?.focus();
    else all[Math.min(next, all.length - 1)]?.focus();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Search" onClose={onClose} onCancel={onClose} onKeyDown={walk} onClick={(event) => (event.target as Element).closest("a") && onClose()}>
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          links()[0]?.click();
        }}
      >
        <label class="search palette-box">
          <Icon name="search" />
          <span class="unseen">Search everything</span>
          <input type="search" value={text} placeholder="An id, words of a query or an error, a tool, a label such as team=shop" onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="button" class="ghost icon-only" aria-label="Close the search" onClick={onClose}>
          <Icon name="close" />
        </button>
      </form>
      <div class="palette-found">
        {fitting.length > 0 && (
          <Part title="Pages">
            {fitting.map(([to, name]) => (
              <li key={to}>
                <a href={to}>{name}</a>
              </li>
            ))}
          </Part>
        )}
        {asked.error && words !== "" && <Refused error={asked.error} />}
        {found && <Results found={found} words={words} />}
      </div>
      <p class="unseen" role="status">
        {found ? `${countText(countOf(found), "result")}` : ""}
      </p>
    </dialog>
  );
}

function countOf({ requests, errors, users, labelled, named, savedPlans }: FindResult): number {
  return requests.totalCount + errors.totalCount + users.totalCount + labelled.totalCount + named.length + savedPlans.length;
}

/** Removes the requests of inline plans. The total number is corrected by the removed ones. */
function withoutInline(found: FindResult): FindResult {
  const nodes = found.requests.nodes.filter((request) => !isInlinePlan(request));
  return { ...found, requests: { nodes, totalCount: found.requests.totalCount - (found.requests.nodes.length - nodes.length) } };
}

function Results({ found, words }: { found: FindResult; words: string }) {
  const { requests, errors, users, labelled, named } = found;
  const lower = words.toLowerCase();
  const saved = found.savedPlans.filter(({ name }) => name.toLowerCase().includes(lower)).slice(0, MAX_TOOLS);
  const now = serverNow();
  const runs = (title: string, part: FindResult["errors"], to: string) =>
    part.totalCount > 0 && (
      <Part title={title} count={part.totalCount} shown={part.nodes.length} to={to}>
        {part.nodes.map((run) => (
          <li key={run.executionId}>
            <a href={`/executions/${run.executionId}`}>
              <Dot state={run.state} size={14} />
              <span class="unseen">{WORD[run.state]}</span>
              <span class="cut">
                <Plain text={run.request?.query ?? run.executionId} />
              </span>
              {run.findings[0] && <span class="cut faint palette-note">{plain(run.findings[0].message.replaceAll("`", ""))}</span>}
              <span class="faint">{formatAge(run.createdAt, now)}</span>
            </a>
          </li>
        ))}
      </Part>
    );
  const isEmpty = countOf({ ...found, savedPlans: saved as FindResult["savedPlans"] }) === 0;
  return (
    <>
      {requests.totalCount > 0 && (
        <Part title="Requests with these words" count={requests.totalCount} shown={requests.nodes.length} to={listPath({ search: words }, "requests")}>
          {requests.nodes.map((request) => (
            <li key={request.requestId}>
              <a href={`/requests/${request.requestId}`}>
                <span class="cut">
                  <Plain text={request.query} />
                </span>
                <span class="faint">{formatAge(request.createdAt, now)}</span>
              </a>
            </li>
          ))}
        </Part>
      )}
      {runs("Executions whose error has these words", errors, listPath({ text: words }))}
      {runs("Executions that use this tool", users, listPath({ tool: words }))}
      {runs("Executions with this label", labelled, listPath({ label: words }))}
      {saved.length > 0 && (
        <Part title="Saved plans">
          {saved.map(({ name }) => (
            <li key={name}>
              <a href={`/saved/${encodeURIComponent(name)}`}>
                <Plain text={name} />
              </a>
            </li>
          ))}
        </Part>
      )}
      {named.length > 0 && (
        <Part title="Tools" count={named.length} shown={Math.min(named.length, MAX_TOOLS)} to={`/tools?search=${encodeURIComponent(words)}`}>
          {named.slice(0, MAX_TOOLS).map(({ qualifiedName, description }) => (
            <li key={qualifiedName}>
              <a href={`/tools/${encodeURIComponent(qualifiedName)}`}>
                <span class="mono">{qualifiedName}</span>
                <span class="cut faint">
                  <Plain text={description} />
                </span>
              </a>
            </li>
          ))}
        </Part>
      )}
      {isEmpty && <p class="faint palette-none">No matches for “{plain(words)}”.</p>}
    </>
  );
}

interface PartProps {
  title: string;
  count?: number;
  shown?: number;
  /** Address of the list with all results. */
  to?: string;
  children: ComponentChildren;
}

function Part({ title, count, shown, to, children }: PartProps) {
  return (
    <section class="palette-part">
      <h2>
        {title}
        {count !== undefined && <span class="count">{count.toLocaleString("en")}</span>}
      </h2>
      <ul>{children}</ul>
      {to !== undefined && count !== undefined && shown !== undefined && count > shown && (
        <a class="palette-more" href={to}>
          Show all {count.toLocaleString("en")}
        </a>
      )}
    </section>
  );
}
