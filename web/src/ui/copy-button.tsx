/** A button that copies a text. */

import { useState } from "preact/hooks";

import { Icon } from "./icons";

/** Copies a text to the clipboard. Without HTTPS, browsers offer only the older `execCommand` for this. */
export async function copyText(text: string): Promise<boolean> {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // The browser denied access to the clipboard, so the code below uses `execCommand`.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  const before = document.activeElement as HTMLElement | null;
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus();
  }
}

export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [state, setState] = useState<"" | "done" | "failed">("");
  const copy = async () => {
    setState((await copyText(text())) ? "done" : "failed");
    setTimeout(() => setState(""), 1_500);
  };
  const said = { "": label, done: "Copied", failed: "The browser does not let the page copy" }[state];
  return (
    <button type="button" class="ghost icon-only copy" aria-label={said} title={said} onClick={copy}>
      <Icon name={{ "": "copy", done: "check", failed: "close" }[state] as "copy"} />
    </button>
  );
}
