/** A score as a bar and a number. A line in the bar marks the lowest score of a hit. */

export function Score({ value, most, line }: { value: number | null; most: number; line?: number | null }) {
  if (value === null) return <span class="faint">–</span>;
  const wide = (it: number) => Math.max(0, Math.min(100, (it / most) * 100));
  return (
    <span class="score">
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect width="100" height="8" class="fill-rest" />
        <rect width={wide(value)} height="8" class="fill-accent" />
        {line != null && <rect x={Math.min(99, wide(line))} width="1.2" height="8" class="fill-line" />}
      </svg>
      <span class="mono">{value.toFixed(Math.abs(value) >= 10 ? 1 : 3)}</span>
    </span>
  );
}
