/** The fields of a step that are rarely needed. */

import { useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, isNumber, print, readNumber, type Fields } from "../api/json";
import { JsonField } from "../tools/form";

interface Props {
  step: Fields;
  name: string;
  onSet: (field: string, value: Json | undefined) => void;
  onRename: (id: string) => void;
}

const WHOLE = /^\d+$/;

export function StepRules({ step, name, onSet, onRename }: Props) {
  const retry = isFields(step.retry) ? step.retry : {};
  const setRetry = (field: string, value: Json | undefined) => {
    const next = { ...retry };
    if (value === undefined) delete next[field];
    else next[field] = value;
    onSet("retry", Object.keys(next).length > 0 ? next : undefined);
  };
  const own = ["retry", "timeoutMs", "idleTimeoutMs", "cacheTtlMs", "maxParallel", "strictTemplates", "outputMapping", "compensate"];
  return (
    <details class="step-more" open={own.some((field) => step[field] !== undefined && step[field] !== null)}>
      <summary>More fields</summary>
      <div class="step-form-rules">
        <IdField name={name} onRename={onRename} />
        <NumberRule label="Attempts" hint="1" value={retry.maxAttempts} onValue={(value) => setRetry("maxAttempts", value)} />
        <NumberRule label="First pause, in ms" hint="200" value={retry.backoffMs} onValue={(value) => setRetry("backoffMs", value)} />
        <NumberRule label="Factor of each further pause" hint="2" value={retry.multiplier} onValue={(value) => setRetry("multiplier", value)} />
        <NumberRule label="Longest pause, in ms" hint="" value={retry.maxBackoffMs} onValue={(value) => setRetry("maxBackoffMs", value)} />
        <NumberRule label="Time limit, in ms" hint="300000" value={step.timeoutMs} onValue={(value) => onSet("timeoutMs", value)} />
        <NumberRule label="Limit without progress, in ms" hint="none" value={step.idleTimeoutMs} onValue={(value) => onSet("idleTimeoutMs", value)} />
        <NumberRule label="Cache the output for, in ms" hint="no cache" value={step.cacheTtlMs} onValue={(value) => onSet("cacheTtlMs", value)} />
        <NumberRule label="Parallel items" hint="256" value={step.maxParallel} onValue={(value) => onSet("maxParallel", value)} />
        <label class="field">
          <span>Missing fields of templates</span>
          <select value={String(step.strictTemplates ?? "")} onChange={(event) => onSet("strictTemplates", event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}>
            <option value="">by the effect of the tool</option>
            <option value="true">fail the step</option>
            <option value="false">warn</option>
          </select>
        </label>
      </div>
      <JsonRule label="Variables from the output" hint='{"id": "orderId"}' value={step.outputMapping} onValue={(value) => onSet("outputMapping", value)} />
      <JsonRule label="Compensate with" hint='{"name": "cancelOrder", "parameters": {}}' value={step.compensate} onValue={(value) => onSet("compensate", value)} />
    </details>
  );
}

/** The id changes when the field loses the focus, because each id selects another step. */
function IdField({ name, onRename }: { name: string; onRename: (id: string) => void }) {
  const [id, setId] = useState(name);
  const done = () => {
    const wanted = id.trim();
    if (wanted !== "" && wanted !== name) onRename(wanted);
    else setId(name);
  };
  return (
    <label class="field">
      <span>Id</span>
      <input type="text" class="mono" value={id} onInput={(event) => setId(event.currentTarget.value)} onBlur={done} onKeyDown={(event) => event.key === "Enter" && done()} />
    </label>
  );
}

interface RuleProps {
  label: string;
  hint: string;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
}

function NumberRule({ label, hint, value, onValue }: RuleProps) {
  const text = isNumber(value) || typeof value === "string" ? print(value).replaceAll('"', "") : "";
  const read = (typed: string) => {
    const number = typed.trim();
    if (number === "") onValue(undefined);
    else if (WHOLE.test(number) || /^\d+\.\d+$/.test(number)) onValue(readNumber(number));
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input type="text" inputMode="decimal" placeholder={hint} value={text} onInput={(event) => read(event.currentTarget.value)} />
    </label>
  );
}

function JsonRule({ label, hint, value, onValue }: RuleProps) {
  return (
    <div class="field">
      <span>{label}</span>
      <JsonField label={label} value={value ?? undefined} onValue={onValue} takesTemplates />
      <span class="faint mono">{hint}</span>
    </div>
  );
}
