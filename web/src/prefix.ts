/**
 * The path prefix below which a proxy shows the page, such as `/faber`. It is empty at the root.
 *
 * All scripts are in `/assets/` below the prefix (`/src/` during development), so the URL of this script shows it.
 */
export const PREFIX = new URL(import.meta.url).pathname.replace(/\/[^/]*\/[^/]*$/, "");

/** Returns the URL of the GraphQL API for WebSockets. */
export function socketUrl(): string {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${PREFIX}/graphql`;
}

/** Returns the path of the page that a URL shows, without the prefix. */
export function withoutPrefix(path: string): string {
  if (path === PREFIX) return "/";
  return path.startsWith(`${PREFIX}/`) ? path.slice(PREFIX.length) : path;
}
