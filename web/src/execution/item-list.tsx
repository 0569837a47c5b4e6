/** The items of a loop, with their states, executions and decisions. */

import type { StepState } from "../api/generated";
import { ActButton } from "../ui/act-button";
import { causeOf, Fault } from "../ui/fault";
import { JsonView } from "../ui/json";
import { Choice } from "../ui/page";
import { plain } from "../ui/plain";
import { Pill } from "../ui/state";
import { spentText } from "../ui/time";
import { Linked } from "../ui/words";
import type { Asking } from "./actions";
import type { Detail } from "./inspector";
import { Section } from "./panel";

interface ItemsProps {
  detail: Detail;
  states: StepState[] | null;
  /** Index of the first item in the list. */
  from: number;
  /** Number of items that were queried. */
  asked: number;
  onFrom: (from: number) => void;
  onSelect: (index: number) => void;
  onStates: (states: StepState[] | null) => void;
  onMore: () => void;
  onAsk: ((it: Asking) => void) | null;
}

/** The filters of the list: key, label, states, and the field with the number of items. */
const FILTERS: readonly (readonly [string, string, StepState[], keyof NonNullable<Detail["itemTally"]>])[] = [
  ["WAITING", "Waiting", ["WAITING"], "waiting"],
  ["RUNNING", "Running", ["RUNNING", "RETRYING"], "running"],
  ["FAILED", "Failed", ["FAILED"], "failed"],
  ["SUCCEEDED", "Succeeded", ["SUCCEEDED", "COMPENSATED"], "successful"],
];

/** Maximum number of items that are shown at the same time. The next items replace them. */
export const MAX_ITEMS = 2_100;

export function ItemList({ detail, states, from, asked, onFrom, onSelect, onStates, onMore, onAsk }: ItemsProps) {
  const tally = detail.itemTally;
  const total = tally?.total ?? detail.items.length;
  const kinds = FILTERS.filter(([, , , name]) => Number(tally?.[name] ?? 0) > 0);
  const shown = FILTERS.find(([, , it]) => it[0] === states?.[0]);
  const last = detail.items.at(-1)?.index ?? -1;
  const isFull = detail.items.length >= MAX_ITEMS;
  const matching = shown && tally ? Number(tally[shown[3]]) : total;
  const hasMore = from === 0 ? detail.items.length < matching : detail.items.length >= asked;
  return (
    <Section title={`Items (${total.toLocaleString("en")})`}>
      {(kinds.length > 1 || states !== null) && (
        <Choice
          label="Which items"
          value={shown?.[0] ?? ""}
          options={[["", `All ${total.toLocaleString("en")}`], ...kinds.map(([it, word, , name]) => [it, `${word} (${Number(tally?.[name]).toLocaleString("en")})`] as const)]}
          onChange={(it) => onStates(FILTERS.find(([kind]) => kind === it)?.[2] ?? null)}
        />
      )}
      <ul class="items">
        {detail.items.map((it) => {
          const name = `${detail.stepId}[${it.index}]`;
          const decides = it.waitsFor === "approval" || it.waitsFor === "decision";
          return (
            <li key={it.index} data-item={it.index} data-state={it.state}>
              <details>
                <summary>
                  <span class="count">{it.index}</span>
                  <Pill state={it.state} />
                  {it.compensation?.state === "FAILED" && <span class="tag tone-bad">not undone</span>}
                  {it.workMs !== null && <span class="faint">{spentText({ worked: it.workMs, waited: it.waitedMs ?? 0 })}</span>}
                  {it.error && <span class="cut faint">{plain(causeOf(it.error.message).slice(0, 200))}</span>}
                </summary>
                {it.index !== null && (
                  <button type="button" class="link" onClick={() => onSelect(it.index!)}>
                    Show {name}
                  </button>
                )}
                {it.childExecutionId && <Linked text={it.childExecutionId} />}
                <JsonView value={it.resolvedParameters} label={`parameters of item ${it.index}`} open={1} />
                {it.error ? <Fault code={it.error.code} message={it.error.message} /> : <JsonView value={it.output} label={`output of item ${it.index}`} open={1} />}
                {it.compensation?.error && <Fault code={it.compensation.error.code} message={it.compensation.error.message} note="could not be undone" />}
              </details>
              {(it.childExecutionId !== null || (onAsk && decides)) && (
                <span class="item-tools">
                  {it.childExecutionId !== null && (
                    <a class="link" href={`/executions/${it.childExecutionId}`}>
                      Its execution
                    </a>
                  )}
                  {onAsk && decides && (
                    <>
                      <ActButton needs="approveStep" class="link" aria-label={`${it.waitsFor === "decision" ? "Try again" : "Approve"} ${name}`} onClick={() => onAsk({ kind: "approve", step: name })}>
                        {it.waitsFor === "decision" ? "Try again" : "Approve"}
                      </ActButton>
                      <ActButton needs="approveStep" class="link" aria-label={`Reject ${name}`} onClick={() => onAsk({ kind: "reject", step: name })}>
                        Reject
                      </ActButton>
                    </>
                  )}
                </span>
              )}
            </li>
          );
        })}
      </ul>
      {(from > 0 || hasMore) && (
        <form
          class="items-foot faint"
          onSubmit={(event) => {
            event.preventDefault();
            const at = Number(new FormData(event.currentTarget).get("from"));
            if (Number.isSafeInteger(at) && at >= 0) onFrom(Math.min(at, total - 1));
          }}
        >
          <span>
            {detail.items.length.toLocaleString("en")} of {matching.toLocaleString("en")} are shown{from > 0 && `, from item ${from.toLocaleString("en")} on`}.
          </span>
          {hasMore && isFull && (
            <button type="button" class="link" onClick={() => onFrom(last + 1)}>
              Show later items
            </button>
          )}
          {hasMore && !isFull && (
            <button type="button" class="link" onClick={onMore}>
              Show more
            </button>
          )}
          {from > 0 && (
            <button type="button" class="link" onClick={() => onFrom(0)}>
              From the first
            </button>
          )}
          <label>
            Go to item <input name="from" type="number" min="0" max={total - 1} required />
          </label>
        </form>
      )}
    </Section>
  );
}
