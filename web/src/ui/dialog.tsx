/** A question in front of everything. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { ApiError } from "../api/client";
import { asRefusal, Refused } from "./fault";

interface Props {
  title: string;
  children?: ComponentChildren;
  /** What the button says that does it. */
  action: string;
  tone?: "bad";
  isWide?: boolean;
  /** Whether what is asked is all there. */
  isReady?: boolean;
  onDo: () => Promise<void>;
  onClose: () => void;
}

export function Dialog({ title, children, action, tone, isWide, isReady = true, onDo, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  // At once: what is typed next is meant for it.
  useLayoutEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    // Whoever goes on by keyboard goes on where they were; and where that is gone, at the page.
    return () => back(opener);
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onDo();
      onClose();
    } catch (error) {
      setError(asRefusal(error));
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

/** Gives an element the focus again that had it, once what was in front of it is gone. */
export function back(opener: HTMLElement | null): void {
  setTimeout(() => {
    if (document.activeElement && document.activeElement !== document.body) return;
    const isThere = opener?.isConnected && opener !== document.body && !(opener as HTMLButtonElement).disabled;
    (isThere ? opener : document.getElementById("main"))?.focus();
  });
}
