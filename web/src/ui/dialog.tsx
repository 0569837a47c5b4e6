/** A question in front of everything. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

import { ApiError } from "../api/client";

interface Props {
  title: string;
  children?: ComponentChildren;
  /** What the button says that does it. */
  action: string;
  tone?: "bad";
  onDo: () => Promise<void>;
  onClose: () => void;
}

export function Dialog({ title, children, action, tone, onDo, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onDo();
      onClose();
    } catch (error) {
      setError(error instanceof ApiError || error instanceof SyntaxError ? error.message : String(error));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby={heading} onClose={onClose} onCancel={onClose}>
      <form onSubmit={submit}>
        <h2 id={heading}>{title}</h2>
        {children}
        {error && (
          <p class="problem" role="alert">
            {error}
          </p>
        )}
        <div class="dialog-buttons">
          <button type="button" onClick={onClose}>
            Not now
          </button>
          <button type="submit" class={tone === "bad" ? "danger" : "primary"} disabled={isBusy}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
