/** The panel beside the graph that shows the selected node. */

import type { ComponentChildren } from "preact";

import { Icon } from "../ui/icons";

/** Whether a node is open in the graph, and the function that opens or closes it. */
export interface Opening {
  isOpen: boolean;
  onToggle: () => void;
}

/** The node that contains the selected one, and the function that selects it. */
export interface Around {
  name: string;
  onGo: () => void;
}

interface Props {
  name: string;
  around: Around | null;
  facts: ComponentChildren;
  opening: Opening | null;
  actions?: ComponentChildren;
  onClose: () => void;
  children: ComponentChildren;
}

export function Panel({ name, around, facts, opening, actions, onClose, children }: Props) {
  return (
    <aside
      class="inspector"
      aria-label={`Step ${name}`}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onClose();
      }}
    >
      <header class="inspector-head">
        <div class="inspector-title">
          <h2 class="cut">{name}</h2>
          <button type="button" class="ghost icon-only" aria-label="Close the step" onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        <p class="facts">
          {facts}
          {around && (
            <button type="button" class="link" onClick={around.onGo}>
              in {around.name}
            </button>
          )}
        </p>
        {(opening || actions) && (
          <div class="buttons">
            {opening && (
              <button type="button" aria-expanded={opening.isOpen} onClick={opening.onToggle}>
                <Icon name="fit" />
                {opening.isOpen ? "Close in the graph" : "Open in the graph"}
              </button>
            )}
            {actions}
          </div>
        )}
      </header>
      <div class="inspector-body">{children}</div>
    </aside>
  );
}

export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="section">
      <h3>{title}</h3>
      {children}
    </section>
  );
}
