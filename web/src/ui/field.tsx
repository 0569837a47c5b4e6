/** A text field with its label. */

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  required?: boolean;
  mono?: boolean;
  /** Id of a `datalist` with suggestions. */
  list?: string;
  placeholder?: string;
}

export function Field({ label, value, onInput, required, mono, list, placeholder }: FieldProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <input type="text" class={mono ? "mono" : ""} value={value} required={required} list={list} placeholder={placeholder} onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}
