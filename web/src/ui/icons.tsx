/** Icons, drawn as lines in a square of 16 pixels. */

const PATHS = {
  list: "M2.5 4h11M2.5 8h11M2.5 12h7",
  plus: "M8 3v10M3 8h10",
  tools: "M10.3 2.6a3.2 3.2 0 0 0-4 4L2.7 10.2a1.6 1.6 0 0 0 0 2.2l.9.9a1.6 1.6 0 0 0 2.2 0l3.6-3.6a3.2 3.2 0 0 0 4-4L11.2 7.9 8.7 7.3 8.1 4.8z",
  graph: "M4 3.8a1.6 1.6 0 1 0 0 .1M12 3.8a1.6 1.6 0 1 0 0 .1M8 12.6a1.6 1.6 0 1 0 0 .1M4.8 5.2 7.3 11M11.2 5.2 8.7 11M5.6 3.8h4.8",
  code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  search: "M7.2 2.8a4.4 4.4 0 1 0 0 8.8 4.4 4.4 0 0 0 0-8.8ZM10.5 10.5l3 3",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.6A5.4 5.4 0 0 1 6.4 3a5.4 5.4 0 1 0 6.6 6.6Z",
  close: "M4 4l8 8M12 4l-8 8",
  chevron: "M6 4l4 4-4 4",
  play: "M5 3.5v9l7-4.5z",
  pause: "M5.5 4v8M10.5 4v8",
  stop: "M4.5 4.5h7v7h-7z",
  retry: "M12.6 7A4.8 4.8 0 1 0 12 10.6M12.9 3.6v3.6H9.3",
  check: "M3.5 8.5l3 3 6-6.5",
  signal: "M8 9.2v4M8 6.6a1.3 1.3 0 1 0 0 .1M5.2 4.4a4 4 0 0 0 0 5M10.8 4.4a4 4 0 0 1 0 5M3.2 2.6a6.4 6.4 0 0 0 0 8.6M12.8 2.6a6.4 6.4 0 0 1 0 8.6",
  fit: "M2.8 6V2.8H6M10 2.8h3.2V6M13.2 10v3.2H10M6 13.2H2.8V10",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
  key: "M10.4 2.8a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8.3 7.7 3 13M5 11l1.6 1.6",
  fork: "M4.5 2.8v10.4M4.5 8.5c4 0 7-.5 7-4M9.6 5.6l1.9-1.9 1.9 1.9",
  person: "M8 2.6a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4ZM2.8 13.6c.4-6 10-6 10.4 0",
  minus: "M3 8h10",
  clock: "M8 2.4a5.6 5.6 0 1 0 0 11.2A5.6 5.6 0 0 0 8 2.4ZM8 5v3.2l2.2 1.6",
  home: "M2.8 7.6 8 3l5.2 4.6M4.4 6.6v6.2h7.2V6.6",
  save: "M3.5 2.8h7l2 2v8.4h-9zM5.6 2.8v3.4h4.2V2.8M5.6 13.2V9.4h4.8v3.8",
  download: "M8 2.8v7M4.8 7 8 10.2 11.2 7M3 13.2h10",
  node: "M2.8 3h10.4v4H2.8zM2.8 9h10.4v4H2.8zM5 5h.01M5 11h.01",
  chart: "M3 13V7.5M8 13V3M13 13v-3.5",
  skip: "M4 3.5v9l6-4.5zM12 3.5v9",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
