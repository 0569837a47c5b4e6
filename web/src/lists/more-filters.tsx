/** The dialog with all parts of the filter for executions. */

import { useState } from "preact/hooks";

import { useAsk } from "../api/client";
import { FilterValues } from "../api/generated";
import { setParams } from "../router";
import { Dialog } from "../ui/dialog";
import { Field } from "../ui/field";
import { WORD } from "../ui/state";
import { readLabels, STATES, statesOf, type Filter } from "./filter";

/** Returns a time as the text of a `datetime-local` field, or an empty text. */
function toLocal(text: string): string {
  const time = Date.parse(text);
  if (Number.isNaN(time)) return "";
  return new Date(time - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function fromLocal(text: string): string {
  return text === "" ? "" : new Date(text).toISOString();
}

export function MoreFilters({ filter, onClose }: { filter: Filter; onClose: () => void }) {
  const values = useAsk(FilterValues, {});
  const [chosen, setChosen] = useState(filter);
  const set = (change: Partial<Filter>) => setChosen((old) => ({ ...old, ...change }));
  const states = statesOf(chosen);
  const apply = async () => {
    const { state, tool, failed, error, text, label, from, to } = chosen;
    const since = from === "" && to === "" ? chosen.since : "";
    setParams({ state, tool: tool.trim(), failed: failed.trim(), error: error.trim(), text: text.trim(), label: readLabels(label) ? label.trim() : "", from, to, since }, "push");
  };
  return (
    <Dialog title="Filter executions" action="Apply" isWide onClose={onClose} onDo={apply}>
      <fieldset class="options-row">
        <legend>State (any if none is chosen)</legend>
        {STATES.map((state) => (
          <label key={state} class="check">
            <input
              type="checkbox"
              checked={states.includes(state)}
              onChange={(event) => set({ state: STATES.filter((one) => (one === state ? event.currentTarget.checked : states.includes(one))).join(",") })}
            />
            {WORD[state]}
          </label>
        ))}
      </fieldset>
      <datalist id="filter-tools">{values.data?.tools.map(({ qualifiedName }) => <option key={qualifiedName} value={qualifiedName} />)}</datalist>
      <datalist id="filter-codes">{values.data?.codes.map(({ keys }) => <option key={keys[0]} value={keys[0]} />)}</datalist>
      <div class="pairs">
        <Field label="Tool of the plan" value={chosen.tool} list="filter-tools" mono onInput={(tool) => set({ tool })} />
        <Field label="Tool that failed" value={chosen.failed} list="filter-tools" mono onInput={(failed) => set({ failed })} />
        <Field label="Error code" value={chosen.error} list="filter-codes" mono onInput={(error) => set({ error })} />
        <Field label="Words of the error" value={chosen.text} onInput={(text) => set({ text })} />
        <Field label="Labels" value={chosen.label} placeholder="team=shop, urgent" mono onInput={(label) => set({ label })} />
        <label class="field">
          <span>Created at or after</span>
          <input type="datetime-local" value={toLocal(chosen.from)} onInput={(event) => set({ from: fromLocal(event.currentTarget.value) })} />
        </label>
        <label class="field">
          <span>Created before</span>
          <input type="datetime-local" value={toLocal(chosen.to)} onInput={(event) => set({ to: fromLocal(event.currentTarget.value) })} />
        </label>
      </div>
    </Dialog>
  );
}
