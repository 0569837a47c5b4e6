/** Where in the page we are: the address is the only state that navigation has. */

import { Cell, useCell } from "./api/cell";

export interface Place {
  path: string;
  query: URLSearchParams;
  /** Whether it is shown in the stead of where we were, and not behind it. */
  isSame: boolean;
  /** Whether the browser's Back or Forward led here. */
  isBack: boolean;
}

const here = (how: { isSame?: boolean; isBack?: boolean } = {}): Place => ({
  path: location.pathname,
  query: new URLSearchParams(location.search),
  isSame: how.isSame ?? false,
  isBack: how.isBack ?? false,
});

export const place = new Cell<Place>(here());

addEventListener("popstate", () => place.set(here({ isBack: true })));

/** Goes somewhere. A change of what is shown at a place takes the place of the entry before. */
export function go(to: string, how: "push" | "replace" = "push", state: unknown = null): void {
  if (to === location.pathname + location.search) return;
  if (how === "push") history.pushState(state, "", to);
  else history.replaceState(history.state, "", to);
  place.set(here({ isSame: how === "replace" }));
}

/** Lets links within the page be followed without loading it anew. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented) return;
    const href = link.getAttribute("href");
    if (!href?.startsWith("/") || link.target || link.hasAttribute("data-outside")) return;
    event.preventDefault();
    go(href);
    scrollTo(0, 0);
  });
}

/** A parameter of the address, and how to change it. Setting the default, or nothing, removes it. */
export function useParam(name: string, standard = ""): [string, (value: string, how?: "push" | "replace") => void] {
  const { query } = useCell(place);
  const set = (value: string, how: "push" | "replace" = "replace") => setParams({ [name]: value === standard ? "" : value }, how);
  return [query.get(name) ?? standard, set];
}

/** A parameter of the address that is one of several values: the first, where it is none of them. */
export function useOneOf<T extends string>(name: string, values: readonly [T, ...T[]]): [T, (value: string) => void] {
  const [value, set] = useParam(name, values[0]);
  return [values.find((it) => it === value) ?? values[0], set];
}

/** Reads a number of the address, which people may write: as near to it as is possible. */
export function numberWithin(text: string, [least, most]: readonly [number, number], standard: number): number {
  const number = text.trim() === "" ? NaN : Number(text);
  return Number.isNaN(number) ? standard : Math.min(most, Math.max(least, number));
}

/** Changes several parameters of the address at once. */
export function setParams(values: Record<string, string>, how: "push" | "replace" = "replace", state: unknown = null): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), how, state);
}

/** Reads a path against a pattern such as `/requests/:id`. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const [want, have] = [pattern.split("/"), path.replace(/(.)\/$/, "$1").split("/")];
  if (want.length !== have.length) return null;
  const found: Record<string, string> = {};
  for (const [at, part] of want.entries()) {
    const value = have[at] ?? "";
    if (part.startsWith(":")) {
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return found;
}
