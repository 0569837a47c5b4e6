/** The button and the keys that open the search. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Icon } from "../ui/icons";

type PaletteProps = { pages: readonly (readonly [string, string])[]; onClose: () => void };

/** Returns whether a key press goes into a text, so that `/` is a character. */
function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return element?.closest?.("input, textarea, select, dialog, [contenteditable]") !== null;
}

export function SearchTrigger({ pages }: { pages: PaletteProps["pages"] }) {
  const [isOpen, setOpen] = useState(false);
  const [Palette, setPalette] = useState<ComponentType<PaletteProps> | null>(null);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isShortcut = (event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target));
      if (!isShortcut || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  useEffect(() => {
    // The code is loaded at the first use. A failure leaves the button as it is, so that the user can try again.
    if (isOpen && !Palette) import("./palette").then(({ Palette }) => setPalette(() => Palette), () => setOpen(false));
  }, [isOpen, Palette]);
  return (
    <>
      <button type="button" class="side-search" aria-label="Search" aria-keyshortcuts="/ Control+K" onClick={() => setOpen(true)}>
        <Icon name="search" />
        <span>Search</span>
        <kbd>/</kbd>
      </button>
      {isOpen && Palette && <Palette pages={pages} onClose={() => setOpen(false)} />}
    </>
  );
}
