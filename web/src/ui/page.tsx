/** Components that pages consist of. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

/** Returns whether the window is as narrow as a phone. */
export function isNarrow(): boolean {
  return matchMedia("(max-width: 760px)").matches;
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Faber`;
  }, [title]);
}

export function Crumbs({ trail, here }: { trail: [string, string][]; here: string }) {
  return (
    <nav class="crumbs" aria-label="Path to this page">
      <ol>
        {trail.map(([name, to]) => (
          <li key={to}>
            <a href={to}>{name}</a>
          </li>
        ))}
        <li aria-current="page" class="mono">
          {here}
        </li>
      </ol>
    </nav>
  );
}

/** A message that data is loading. As a whole page, it has a heading. */
export function Loading({ isPage }: { isPage?: boolean }) {
  return (
    <>
      {isPage && <h1 class="unseen">Loading</h1>}
      <p class="loading" role="status">
        <span class="loading-bar" aria-hidden="true" />
        <span class="unseen">Loading</span>
      </p>
    </>
  );
}

/** A message that there is no data. As a whole page, it has the heading of the page. */
export function Empty({ title, children, isPage }: { title: string; children?: ComponentChildren; isPage?: boolean }) {
  return (
    <div class="empty">
      {isPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      <div>{children}</div>
    </div>
  );
}

interface TabsProps {
  label: string;
  tabs: readonly string[];
  shown: string;
  onShow: (tab: string) => void;
  names?: Record<string, ComponentChildren>;
}

export function Tabs({ label, tabs, shown, onShow, names = {} }: TabsProps) {
  const list = useRef<HTMLDivElement>(null);
  const walk = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const at = (tabs.indexOf(shown) + step + tabs.length) % tabs.length;
    onShow(tabs[at]!);
    (list.current?.children[at] as HTMLElement | undefined)?.focus();
    event.preventDefault();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={walk}>
      {tabs.map((it) => (
        <button
          key={it}
          type="button"
          role="tab"
          id={`tab-${it}`}
          aria-selected={it === shown}
          {...(it === shown ? { "aria-controls": "panel" } : {})}
          tabIndex={it === shown ? 0 : -1}
          onClick={() => onShow(it)}
        >
          {names[it] ?? it.charAt(0).toUpperCase() + it.slice(1)}
        </button>
      ))}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

export function Choice({ label, value, options, onChange }: ChoiceProps) {
  const id = useId();
  return (
    <span class="choice">
      <label class="unseen" for={id}>
        {label}
      </label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([it, name]) => (
          <option key={it} value={it}>
            {name}
          </option>
        ))}
      </select>
    </span>
  );
}
