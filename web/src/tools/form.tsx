/** A form for values of a JSON Schema. Schemas that it does not support get a text field for JSON. */

import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, isNumber, parse, print, readNumber, type Fields as JsonFields } from "../api/json";

export type Schema = JsonFields;

/** Maximum nesting of forms. Deeper values get a text field for JSON. */
const MAX_FORM_DEPTH = 4;

export const isSchema = isFields;

interface Props {
  schema: Schema;
  root: Schema;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  depth?: number;
  /** True if a template such as `{{step.path}}` is a valid value. */
  takesTemplates?: boolean;
}

/** Returns whether a value contains a template. */
function isTemplate(it: Json | undefined): it is string {
  return typeof it === "string" && it.includes("{{");
}

/** Fields for the properties of an object. Empty fields are left out of the value. */
export function Fields({ schema, root, value, onValue, depth = 0, takesTemplates = false }: Props) {
  const properties = isSchema(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields = isSchema(value) ? value : {};
  const names = Object.keys(properties);
  if (names.length === 0) {
    const isClosed = schema.additionalProperties === false;
    return isClosed ? <p class="faint">It takes no parameters.</p> : <JsonField value={value} onValue={onValue} label={depth === 0 ? "Parameters" : "Value"} takesTemplates={takesTemplates} />;
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
          schema={resolveReferences(properties[name], root)}
          root={root}
          isRequired={required.includes(name)}
          value={fields[name]}
          onValue={(it) => set(name, it)}
          depth={depth}
          takesTemplates={takesTemplates}
        />
      ))}
    </div>
  );
}

/** Follows references within the document, at most eight in a row. Of a schema or null, returns the schema. */
export function resolveReferences(schema: Json | undefined, root: Schema): Schema {
  let found: Json | undefined = schema;
  for (let n = 0; n < 8 && isSchema(found) && typeof found.$ref === "string"; n += 1) {
    const path: string[] = found.$ref.replace(/^#\/?/, "").split("/").filter(Boolean);
    found = path.reduce<Json | undefined>((at, part) => (isSchema(at) ? at[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined), root);
  }
  if (isSchema(found) && Array.isArray(found.anyOf)) {
    const real: Json | undefined = found.anyOf.find((it) => isSchema(it) && it.type !== "null");
    if (isSchema(real) && found.anyOf.length <= 2) return { ...resolveReferences(real, root), description: found.description ?? real.description ?? null };
  }
  return isSchema(found) ? found : {};
}

interface OneProps extends Props {
  name: string;
  isRequired: boolean;
}

function One({ name, schema, root, isRequired, value, onValue, depth = 0, takesTemplates = false }: OneProps) {
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
  if (type === "object" && isSchema(schema.properties) && depth < MAX_FORM_DEPTH && !isTemplate(value)) {
    return (
      <fieldset>
        <legend>{label}</legend>
        {about && <p class="faint">{about}</p>}
        <Fields schema={schema} root={root} value={value} onValue={onValue} depth={depth + 1} takesTemplates={takesTemplates} />
      </fieldset>
    );
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <Input id={id} schema={schema} type={type} value={value} onValue={onValue} isRequired={isRequired} takesTemplates={takesTemplates} />
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
  takesTemplates: boolean;
}

/** The value of the choice that writes a template. */
const TEMPLATE = "{{";

function Input({ id, schema, type, value, onValue, isRequired, takesTemplates }: InputProps) {
  const [isWritten, setWritten] = useState(false);
  const asText = (event: { currentTarget: HTMLTextAreaElement }) => {
    const text = event.currentTarget.value;
    setWritten(text !== "");
    onValue(text === "" ? undefined : text);
  };
  // A template can replace a value of any type. While the user writes it, the field is a text field.
  if (type !== "integer" && type !== "number" && (isTemplate(value) || (isWritten && typeof value === "string"))) {
    return <textarea id={id} class="one-line mono" rows={1} spellcheck={false} value={value} onInput={asText} />;
  }
  const choices = Array.isArray(schema.enum) ? schema.enum : type === "boolean" ? [true, false] : null;
  if (choices) {
    const choose = (chosen: string) => {
      setWritten(chosen === TEMPLATE);
      onValue(chosen === "" ? undefined : chosen === TEMPLATE ? "{{}}" : parse(chosen));
    };
    return (
      <select id={id} value={value === undefined ? "" : print(value)} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">–</option>
        {choices.map((it) => (
          <option key={print(it)} value={print(it)}>
            {typeof it === "string" ? it : print(it)}
          </option>
        ))}
        {takesTemplates && <option value={TEMPLATE}>a template…</option>}
      </select>
    );
  }
  if (type === "integer" || type === "number") {
    return <NumberField id={id} isWhole={type === "integer"} value={value} onValue={onValue} isRequired={isRequired} takesTemplates={takesTemplates} />;
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
        onInput={asText}
      />
    );
  }
  return <JsonField id={id} value={value} onValue={onValue} label={null} takesTemplates={takesTemplates} />;
}

interface NumberProps {
  id: string;
  isWhole: boolean;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  isRequired: boolean;
  takesTemplates: boolean;
}

/** A field for a number, which keeps all digits, or for a template. */
function NumberField({ id, isWhole, value, onValue, isRequired, takesTemplates }: NumberProps) {
  const text = value === undefined || value === null ? "" : typeof value === "string" ? value : print(value);
  const isRight = text === "" || isNumber(value) || (takesTemplates && isTemplate(value));
  const box = useRef<HTMLInputElement>(null);
  const what = isWhole ? "a whole number" : "a number";
  useLayoutEffect(() => box.current?.setCustomValidity(isRight ? "" : `This is not ${what}.`), [isRight, what]);
  const read = (typed: string) => {
    const it = typed.trim();
    if (it === "") onValue(undefined);
    else onValue((isWhole ? WHOLE_NUMBER : NUMBER).test(it) ? readNumber(it) : typed);
  };
  return (
    <>
      <input ref={box} id={id} type="text" inputMode={takesTemplates ? "text" : isWhole ? "numeric" : "decimal"} spellcheck={false} required={isRequired} aria-invalid={!isRight} value={text} onFocus={(event) => event.currentTarget.select()} onInput={(event) => read(event.currentTarget.value)} />
      {!isRight && <span class="field-wrong">This is not {what}{takesTemplates && <>, nor a template such as {"{{step.path}}"}</>}.</span>}
    </>
  );
}

const WHOLE_NUMBER = /^-?(?:0|[1-9]\d*)$/;
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

interface JsonFieldProps {
  id?: string;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  label: string | null;
  takesTemplates?: boolean;
}

/** Parses the text of a field: empty, JSON, or a template. Throws an error for anything else. */
function readField(text: string, takesTemplates: boolean): Json | undefined {
  const it = text.trim();
  if (it === "") return undefined;
  return takesTemplates && it.startsWith("{{") && it.endsWith("}}") ? it : parse(it);
}

function written(value: Json | undefined, takesTemplates: boolean): string {
  if (value === undefined) return "";
  const isWhole = takesTemplates && typeof value === "string" && value.startsWith("{{") && value.endsWith("}}");
  return isWhole ? (value as string) : print(value, 2);
}

export function JsonField({ id, value, onValue, label, takesTemplates = false }: JsonFieldProps) {
  const [text, setText] = useState(() => written(value, takesTemplates));
  const [isWrong, setWrong] = useState(false);
  const last = useRef(value);
  // A value that changes outside this field replaces the text. After a change by the user, the text stays as it was
  // typed.
  useLayoutEffect(() => {
    if (print(value) !== print(last.current)) {
      setText(written(value, takesTemplates));
      setWrong(false);
    }
    last.current = value;
  }, [value]);
  const read = (typed: string) => {
    setText(typed);
    try {
      const it = readField(typed, takesTemplates);
      last.current = it;
      setWrong(false);
      onValue(it);
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
