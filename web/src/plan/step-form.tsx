/** A form for one step of a plan. Every change is written into the text of the plan. */

import type { Json, ToolNamesResult } from "../api/generated";
import type { Fields as JsonFields } from "../api/json";
import { Fields, isSchema } from "../tools/form";
import { Icon } from "../ui/icons";
import { StepRules } from "./step-rules";

export type ToolName = ToolNamesResult["tools"][number];

interface Props {
  step: JsonFields;
  name: string;
  tools: readonly ToolName[];
  others: readonly string[];
  onStep: (step: JsonFields) => void;
  onRemove: () => void;
  /** Gives the step another id. */
  onRename: (id: string) => void;
  onClose: () => void;
}

export function StepForm({ step, name, tools, others, onStep, onRemove, onRename, onClose }: Props) {
  const called = String(step.name ?? step.toolName ?? "");
  const tool = toolOf(called, tools);
  const schema = tool && isSchema(tool.inputSchema) ? tool.inputSchema : {};
  const set = (field: string, value: Json | undefined) => {
    const next = { ...step };
    if (value === undefined || value === "" || value === false || (Array.isArray(value) && value.length === 0)) delete next[field];
    else next[field] = value;
    onStep(next);
  };
  /** Sets a field whose value can be false. */
  const setExactly = (field: string, value: Json | undefined) => {
    const { [field]: _, ...rest } = step;
    onStep(value === undefined ? rest : { ...rest, [field]: value });
  };
  const after = step.dependsOn === undefined || step.dependsOn === null ? [] : Array.isArray(step.dependsOn) ? step.dependsOn.map(String) : [String(step.dependsOn)];
  return (
    <section class="step-form" aria-label={`Step ${name}`}>
      <div class="inspector-title">
        <h2 class="cut">{name}</h2>
        <span class="grow" />
        <button type="button" class="danger" onClick={onRemove}>
          Remove
        </button>
        <button type="button" class="ghost icon-only" aria-label="Close the form" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {tool?.description && <p class="faint">{tool.description}</p>}
      <Fields key={called} schema={schema} root={schema} value={step.parameters} onValue={(it) => set("parameters", it ?? {})} takesTemplates />
      <div class="step-form-rules">
        <TextRule label="When" hint={'steps["id"].ok'} value={step.when} onValue={(it) => set("when", it)} />
        <TextRule label="For each" hint="{{step.list}}" value={step.forEach} onValue={(it) => set("forEach", it)} />
        <label class="field">
          <span>On error</span>
          <select value={String(step.onError ?? "fail")} onChange={(event) => set("onError", event.currentTarget.value === "fail" ? undefined : event.currentTarget.value)}>
            {["fail", "continue", "ignore", "wait"].map((it) => (
              <option key={it}>{it}</option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>After</span>
          <select
            value=""
            onChange={(event) => event.currentTarget.value && set("dependsOn", [...after, event.currentTarget.value])}
          >
            <option value="">{after.length > 0 ? after.join(", ") : "what its templates name"}</option>
            {others
              .filter((it) => !after.includes(it))
              .slice(0, 500)
              .map((it) => (
                <option key={it} value={it}>
                  and {it}
                </option>
              ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={step.requiresApproval === true} onChange={(event) => set("requiresApproval", event.currentTarget.checked)} />
          A person must approve
        </label>
        {after.length > 0 && (
          <button type="button" class="link" onClick={() => set("dependsOn", undefined)}>
            After no other step
          </button>
        )}
      </div>
      <StepRules key={name} step={step} name={name} onSet={setExactly} onRename={onRename} />
    </section>
  );
}

function TextRule({ label, hint, value, onValue }: { label: string; hint: string; value: Json | undefined; onValue: (it: string) => void }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input type="text" class="mono" placeholder={hint} value={typeof value === "string" ? value : ""} onInput={(event) => onValue(event.currentTarget.value)} />
    </label>
  );
}

export function toolOf(name: string, tools: readonly ToolName[]): ToolName | undefined {
  return tools.find((it) => it.qualifiedName === name) ?? tools.find((it) => it.name === name);
}

/**
 * Returns a new step that calls a tool. Required parameters without a default are left out, so the plan is invalid
 * until a person has chosen their values.
 */
export function emptyStep(tool: ToolName, taken: ReadonlySet<string>): JsonFields {
  const name = tool.name.replace(/[^\w.-]/g, "_");
  let id = name;
  for (let n = 2; taken.has(id); n += 1) id = `${name}_${n}`;
  const schema = isSchema(tool.inputSchema) ? tool.inputSchema : {};
  const properties = isSchema(schema.properties) ? schema.properties : {};
  const parameters: Record<string, Json> = {};
  for (const name of requiredOf(tool)) {
    const property = properties[name];
    if (isSchema(property) && property.default !== undefined) parameters[name] = property.default as Json;
  }
  return { id, name: tool.qualifiedName, parameters };
}

/** Returns the names of a tool's required parameters. */
export function requiredOf(tool: ToolName): string[] {
  const schema = isSchema(tool.inputSchema) ? tool.inputSchema : {};
  return Array.isArray(schema.required) ? schema.required.map(String) : [];
}
