/** Filters that the user has saved under a name. They stay in the browser. */

import { useState } from "preact/hooks";

import { go } from "../router";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icons";
import { Field } from "../ui/field";

const KEY = "faber.views";
const MAX_VIEWS = 30;

interface View {
  name: string;
  /** Address of the list with its filter. */
  path: string;
}

function readViews(): View[] {
  try {
    const views: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(views) ? views.filter(isView) : [];
  } catch {
    return [];
  }
}

function isView(view: Partial<View> | null): view is View {
  return typeof view?.name === "string" && typeof view.path === "string" && view.path.startsWith("/");
}

/** Links to the saved views, and a button that saves the current filter. */
export function Views({ path, isFiltered }: { path: string; isFiltered: boolean }) {
  const [views, setViews] = useState(readViews);
  const [name, setName] = useState<string | null>(null);
  const store = (next: View[]) => {
    localStorage.setItem(KEY, JSON.stringify(next));
    setViews(next);
  };
  const isKnown = views.some((view) => view.path === path);
  if (views.length === 0 && !isFiltered) return null;
  return (
    <nav class="views" aria-label="Saved views">
      {views.map((view) => (
        <span key={view.name} class="chip">
          <a href={view.path} {...(view.path === path ? { "aria-current": "page" as const } : {})}>
            {view.name}
          </a>
          <button type="button" class="ghost" aria-label={`Remove the view ${view.name}`} onClick={() => store(views.filter((other) => other.name !== view.name))}>
            <Icon name="close" size={12} />
          </button>
        </span>
      ))}
      {isFiltered && !isKnown && (
        <button type="button" class="link" onClick={() => setName("")}>
          Save view…
        </button>
      )}
      {name !== null && (
        <Dialog
          title="Save this filter as a view"
          action="Save"
          onClose={() => setName(null)}
          onDo={async () => {
            const others = views.filter((view) => view.name !== name.trim());
            store([...others, { name: name.trim(), path }].slice(-MAX_VIEWS));
            go(path, "replace");
          }}
        >
          <p>Views stay in this browser.</p>
          <Field label="Name" value={name} onInput={setName} required />
        </Dialog>
      )}
    </nav>
  );
}
