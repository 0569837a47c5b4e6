/** A dialog that blocks the rest of the page. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { ApiError } from "../api/client";
import { toApiError, Refused } from "./fault";

interface Props {
  title: string;
  children?: ComponentChildren;
  /** Label of the button that confirms. */
  action: string;
  tone?: "bad";
  isWide?: boolean;
  /** False while data for the question is still missing. Then the button is disabled. */
  isReady?: boolean;
  /** Carries out the action. The dialog then closes, unless this function returns `stay`. */
  onDo: () => Promise<void | "stay">;
  onClose: () => void;
}

export function Dialog({ title, children, action, tone, isWide, isReady = true, onDo, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  // A layout effect opens the dialog before the next key press, which must go to the dialog.
  useLayoutEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    // Keyboard users continue at the button that opened the dialog, or at the page if that button has disappeared.
    return () => restoreFocus(opener);
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if ((await onDo()) === "stay") setBusy(false);
      else onClose();
    } catch (error) {
      setError(toApiError(error));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class={isWide ? "is-wide" : ""} aria-labelledby={heading} onClose={onClose} onCancel={onClose}>
      <form onSubmit={submit}>
        <h2 id={heading}>{title}</h2>
        {children}
        {error && <Refused error={error} />}
        <div class="dialog-buttons">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class={tone === "bad" ? "danger" : "primary"} disabled={isBusy || !isReady}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Moves the focus back to an element, or to the page, after a dialog or panel is closed. */
export function restoreFocus(opener: HTMLElement | null): void {
  setTimeout(() => {
    if (document.activeElement && document.activeElement !== document.body) return;
    const isThere = opener?.isConnected && opener !== document.body && !(opener as HTMLButtonElement).disabled;
    (isThere ? opener : document.getElementById("main"))?.focus();
  });
}
