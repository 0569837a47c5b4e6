/** The shapes of states, by colour name, drawn as lines in a square of 16 pixels. */
export const SHAPES: Record<string, string> = {
  idle: "M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6Z",
  good: "M4.6 8.3l2.3 2.3 4.6-4.9",
  bad: "M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4",
  waiting: "M6.3 5.2v5.6M9.7 5.2v5.6",
  retrying: "M11.4 7.2A3.6 3.6 0 1 0 11 10M11.6 4.9v2.5H9.1",
  skipped: "M5 5.2L8 8l-3 2.8M8.4 5.2l3 2.8-3 2.8",
  stopped: "M5.8 5.8h4.4v4.4H5.8z",
  undone: "M6.4 5L4.6 6.8l1.8 1.8M4.8 6.8h4.4a2.2 2.2 0 0 1 0 4.4H7",
  running: "M8 3.6a4.4 4.4 0 0 1 4.4 4.4",
};
