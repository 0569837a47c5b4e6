/** The router of the page. The URL is the only state of navigation. */

import { options } from "preact";

import { Cell, useCell } from "./api/cell";
import { PREFIX, withoutPrefix } from "./prefix";

export interface Place {
  path: string;
  query: URLSearchParams;
  /** True if the last navigation replaced the history entry. */
  isSame: boolean;
  /** True if the Back or Forward button of the browser led here. */
  isBack: boolean;
}

/** Parameters of the list of requests, which had the address `/` in earlier versions. */
const LIST_PARAMS = ["state", "search", "since", "needs"];

function here(how: { isSame?: boolean; isBack?: boolean } = {}): Place {
  const query = new URLSearchParams(location.search);
  if (withoutPrefix(location.pathname) === "/" && LIST_PARAMS.some((name) => query.has(name))) {
    history.replaceState(history.state, "", `${PREFIX}/requests${location.search}`);
  }
  return { path: withoutPrefix(location.pathname), query, isSame: how.isSame ?? false, isBack: how.isBack ?? false };
}

export const place = new Cell<Place>(here());

addEventListener("popstate", () => place.set(here({ isBack: true })));

/** Navigates to a path of the page, with a new history entry or in place of the present one. */
export function go(path: string, how: "push" | "replace" = "push", state: unknown = null): void {
  const to = PREFIX + path;
  if (to === location.pathname + location.search) return;
  if (how === "push") history.pushState(state, "", to);
  else history.replaceState(history.state, "", to);
  place.set(here({ isSame: how === "replace" }));
}

/** Puts the prefix in front of each link of the page. So components write the path only. */
export function prefixLinks(): void {
  const next = options.vnode;
  options.vnode = (node) => {
    const props = node.props as { href?: unknown };
    if (node.type === "a" && typeof props.href === "string" && props.href.startsWith("/")) {
      props.href = PREFIX + props.href;
    }
    next?.(node);
  };
}

/** Handles clicks on links within the page, so that the browser does not load the page again. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented) return;
    const href = link.getAttribute("href");
    if (!href?.startsWith("/") || link.target || link.hasAttribute("data-outside")) return;
    event.preventDefault();
    go(withoutPrefix(href));
    scrollTo(0, 0);
  });
}

/** Returns a parameter of the URL, and a function that sets it. The default value removes it from the URL. */
export function useParam(name: string, standard = ""): [string, (value: string, how?: "push" | "replace") => void] {
  const { query } = useCell(place);
  const set = (value: string, how: "push" | "replace" = "replace") => setParams({ [name]: value === standard ? "" : value }, how);
  return [query.get(name) ?? standard, set];
}

/** Returns a parameter of the URL that must be one of these values. Any other value counts as the first one. */
export function useOneOf<T extends string>(name: string, values: readonly [T, ...T[]]): [T, (value: string) => void] {
  const [value, set] = useParam(name, values[0]);
  return [values.find((it) => it === value) ?? values[0], set];
}

/** Reads a number of the URL. A number outside the range becomes the closest valid one. */
export function clampNumber(text: string, [least, most]: readonly [number, number], standard: number): number {
  const number = text.trim() === "" ? NaN : Number(text);
  return Number.isNaN(number) ? standard : Math.min(most, Math.max(least, number));
}

/** Changes several parameters of the URL at once. */
export function setParams(values: Record<string, string>, how: "push" | "replace" = "replace", state: unknown = null): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(withoutPrefix(location.pathname) + (text ? `?${text}` : ""), how, state);
}

/** Matches a path with a pattern such as `/requests/:id`, and returns the parameters. Returns null if it does not match. */
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
