/** A list of objects as a table. */

import { useMemo, useState } from "preact/hooks";

import type { Json } from "../api/generated";
import { isFields, Num, print, type Fields } from "../api/json";
import { Plain } from "../ui/plain";

const MIN_ROWS = 2;
const MAX_COLUMNS = 30;
const ROWS_PER_PAGE = 100;
const MAX_CELL_CHARS = 120;

/** Returns whether a value is a list of objects. Only its first entries are looked at. */
export function isTable(value: Json): value is Fields[] {
  return Array.isArray(value) && value.length >= MIN_ROWS && value.slice(0, ROWS_PER_PAGE).every(isFields);
}

export function TableView({ rows }: { rows: readonly Json[] }) {
  const [count, setCount] = useState(ROWS_PER_PAGE);
  const columns = useMemo(() => [...new Set(rows.slice(0, 10 * ROWS_PER_PAGE).flatMap((row) => (isFields(row) ? Object.keys(row) : [])))], [rows]);
  return (
    <div class="json-table" tabIndex={0} role="group" aria-label="Table">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">#</th>
            {columns.slice(0, MAX_COLUMNS).map((column) => (
              <th key={column} scope="col">
                <Plain text={column} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, count).map((row, n) => (
            <tr key={n}>
              <td class="faint">{n}</td>
              {columns.slice(0, MAX_COLUMNS).map((column) => (
                <td key={column}>{isFields(row) && Object.hasOwn(row, column) && <Plain text={cellText(row[column])} />}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {columns.length > MAX_COLUMNS && <p class="faint">{columns.length - MAX_COLUMNS} more columns are only in the tree.</p>}
      {rows.length > count && (
        <button type="button" class="link" onClick={() => setCount(count + ROWS_PER_PAGE)}>
          {rows.length - count} more rows
        </button>
      )}
    </div>
  );
}

function cellText(value: Json | undefined): string {
  const text = typeof value === "string" ? value : value instanceof Num ? value.text : print(value ?? null);
  return text.length > MAX_CELL_CHARS ? `${text.slice(0, MAX_CELL_CHARS)}…` : text;
}
