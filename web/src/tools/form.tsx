/** A form for whatever a JSON Schema describes. What it does not understand is written as JSON. */

import { useId, useState } from "preact/hooks";

import type { Json } from "../api/generated";

export type Schema = { [key: string]: Json };

/** How deep forms go; below that values are written as JSON. */
const DEPTH = 4;

export function isSchema(it: Json | undefined): it is Schema {
  return it !== null && typeof it === "object" && !Array.isArray(it);
}

interface Props {
  schema: Schema;
  root: Schema;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  depth?: number;
}

/** The fields of an object. Those that are left empty are left out. */
export function Fields({ schema, root, value, onValue, depth = 0 }: Props) {
  const properties = isSchema(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields = isSchema(value) ? value : {};
  const names = Object.keys(properties);
  if (names.length === 0) {
    const isClosed = schema.additionalProperties === false;
    return isClosed ? <p class="faint">It takes no parameters.</p> : <JsonField value={value} onValue={onValue} label={depth === 0 ? "Parameters" : "Value"} />;
  }
  const set = (name: string, it: Json | undefined) => {
    const next = { ...fields };
    if (it === undefined) delete next[name];
    else next[name] = it;
    onValue(next);
  };
  return (
    <div class="fields">
      {names.map((name) => (
        <One
          key={name}
          name={name}
          schema={resolved(properties[name], root)}
          root={root}
          isRequired={required.includes(name)}
          value={fields[name]}
          onValue={(it) => set(name, it)}
          depth={depth}
        />
      ))}
    </div>
  );
}

/** Follows a reference within the document, a few times. */
function resolved(schema: Json | undefined, root: Schema): Schema {
  let found: Json | undefined = schema;
  for (let n = 0; n < 8 && isSchema(found) && typeof found.$ref === "string"; n += 1) {
    const path: string[] = found.$ref.replace(/^#\/?/, "").split("/").filter(Boolean);
    found = path.reduce<Json | undefined>((at, part) => (isSchema(at) ? at[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined), root);
  }
  if (isSchema(found) && Array.isArray(found.anyOf)) {
    const real: Json | undefined = found.anyOf.find((it) => isSchema(it) && it.type !== "null");
    if (isSchema(real) && found.anyOf.length <= 2) return { ...resolved(real, root), description: found.description ?? real.description ?? null };
  }
  return isSchema(found) ? found : {};
}

interface OneProps extends Props {
  name: string;
  isRequired: boolean;
}

function One({ name, schema, root, isRequired, value, onValue, depth = 0 }: OneProps) {
  const id = useId();
  const types = Array.isArray(schema.type) ? schema.type.filter((it) => it !== "null") : [schema.type];
  const type = types.length === 1 ? types[0] : undefined;
  const about = typeof schema.description === "string" ? schema.description : "";
  const label = (
    <>
      {name}
      {isRequired && <span class="required"> required</span>}
    </>
  );
  if (type === "object" && isSchema(schema.properties) && depth < DEPTH) {
    return (
      <fieldset>
        <legend>{label}</legend>
        {about && <p class="faint">{about}</p>}
        <Fields schema={schema} root={root} value={value} onValue={onValue} depth={depth + 1} />
      </fieldset>
    );
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <Input id={id} schema={schema} type={type} value={value} onValue={onValue} isRequired={isRequired} />
      {about && <span class="faint field-about">{about}</span>}
    </div>
  );
}

interface InputProps {
  id: string;
  schema: Schema;
  type: Json | undefined;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  isRequired: boolean;
}

function Input({ id, schema, type, value, onValue, isRequired }: InputProps) {
  // A template stands for a value of whatever type.
  if (typeof value === "string" && value.includes("{{")) {
    return <textarea id={id} class="one-line mono" rows={1} value={value} onInput={(event) => onValue(event.currentTarget.value === "" ? undefined : event.currentTarget.value)} />;
  }
  if (Array.isArray(schema.enum)) {
    const options = schema.enum;
    return (
      <select id={id} value={JSON.stringify(value) ?? ""} onChange={(event) => onValue(event.currentTarget.value === "" ? undefined : (JSON.parse(event.currentTarget.value) as Json))}>
        <option value="">–</option>
        {options.map((it) => (
          <option key={JSON.stringify(it)} value={JSON.stringify(it)}>
            {typeof it === "string" ? it : JSON.stringify(it)}
          </option>
        ))}
      </select>
    );
  }
  if (type === "boolean") {
    return (
      <select id={id} value={value === undefined ? "" : String(value)} onChange={(event) => onValue(event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}>
        <option value="">–</option>
        <option value="true">true</option>
        <option value="false">false</option>
      </select>
    );
  }
  if (type === "integer" || type === "number") {
    const read = (text: string) => (text === "" ? undefined : Number(text));
    return <input id={id} type="number" step={type === "integer" ? 1 : "any"} required={isRequired} value={typeof value === "number" ? value : ""} onInput={(event) => onValue(read(event.currentTarget.value))} />;
  }
  if (type === "string") {
    const usual = typeof schema.default === "string" ? schema.default : undefined;
    return (
      <textarea
        id={id}
        class="one-line"
        rows={1}
        required={isRequired && schema.minLength !== 0}
        placeholder={usual ?? ""}
        value={typeof value === "string" ? value : ""}
        onInput={(event) => onValue(event.currentTarget.value === "" ? undefined : event.currentTarget.value)}
      />
    );
  }
  return <JsonField id={id} value={value} onValue={onValue} label={null} />;
}

export function JsonField({ id, value, onValue, label }: { id?: string; value: Json | undefined; onValue: (value: Json | undefined) => void; label: string | null }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [isWrong, setWrong] = useState(false);
  const read = (text: string) => {
    setText(text);
    try {
      onValue(text.trim() === "" ? undefined : (JSON.parse(text) as Json));
      setWrong(false);
    } catch {
      setWrong(true);
    }
  };
  return (
    <>
      <textarea id={id} class="mono" rows={2} spellcheck={false} placeholder="JSON" aria-invalid={isWrong} {...(label ? { "aria-label": label } : {})} value={text} onInput={(event) => read(event.currentTarget.value)} />
      {isWrong && <span class="field-wrong">This is not JSON yet.</span>}
    </>
  );
}
