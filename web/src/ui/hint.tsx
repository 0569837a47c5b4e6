/** A question mark that opens a short explanation. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

export function Hint({ about, children }: { about: string; children: ComponentChildren }) {
  const hint = useRef<HTMLDetailsElement>(null);
  const close = () => hint.current?.removeAttribute("open");
  return (
    <details
      ref={hint}
      class="hint"
      onFocusOut={(event) => {
        if (!hint.current?.contains(event.relatedTarget as Node | null)) close();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !hint.current?.open) return;
        event.stopPropagation();
        close();
        hint.current.querySelector("summary")?.focus();
      }}
    >
      <summary aria-label={`What is ${about}?`}>?</summary>
      <span class="hint-text">{children}</span>
    </details>
  );
}
