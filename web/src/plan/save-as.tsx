/** The dialog that saves a plan under a name, with a form for its input. */

import { useState } from "preact/hooks";

import { ask, useAsk } from "../api/client";
import { SavedPlans, SavePlan } from "../api/generated";
import { parse, print } from "../api/json";
import { go } from "../router";
import { Dialog } from "../ui/dialog";
import { Field } from "../ui/field";

interface Props {
  /** Stores the text if it has changed, and returns the id of the plan. */
  keep: () => Promise<string>;
  /** The names of the input that the plan uses. */
  inputs: readonly string[];
  onClose: () => void;
}

export function SaveAsDialog({ keep, inputs, onClose }: Props) {
  const saved = useAsk(SavedPlans, {});
  const [name, setName] = useState("");
  const names = inputs.filter((input) => input !== "");
  const [schema, setSchema] = useState(() => (names.length === 0 ? "" : print(Object.fromEntries(names.map((input) => [input, { type: "string" }])), 2)));
  const isTaken = saved.data?.savedPlans.some((plan) => plan.name === name.trim()) ?? false;
  const save = async () => {
    const given = schema.trim() === "" ? null : parse(schema);
    const planId = await keep();
    await ask(SavePlan, { name: name.trim(), planId, inputs: given });
    go(`/saved/${encodeURIComponent(name.trim())}`);
  };
  return (
    <Dialog title="Save the plan under a name" action={isTaken ? "Replace" : "Save"} {...(isTaken ? { tone: "bad" as const } : {})} isWide onClose={onClose} onDo={save}>
      <Field label="Name" value={name} onInput={setName} required />
      {isTaken && <p class="warning">A saved plan with this name exists. It will then mean this plan.</p>}
      <label class="field">
        <span>Input as JSON Schema, for the form (optional)</span>
        <textarea class="mono" rows={Math.min(12, Math.max(3, schema.split("\n").length))} spellcheck={false} value={schema} onInput={(event) => setSchema(event.currentTarget.value)} />
        <span class="faint">The properties of the input, or a whole schema. A property without a default is required.</span>
      </label>
    </Dialog>
  );
}
