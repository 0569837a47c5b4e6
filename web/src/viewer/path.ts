/** Paths into a value, written as templates write them. */

/** The keys of objects and the indices of lists that lead to an inner value. */
export type Path = readonly (string | number)[];

const NAME = /^[A-Za-z_]\w*$/;

/** Returns the path as text, such as `rows[0].amount`. */
export function pathText(path: Path, root: string): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    if (!NAME.test(part)) return `${text}[${JSON.stringify(part)}]`;
    return text === "" ? part : `${text}.${part}`;
  }, root);
}

/**
 * Returns the template for an inner value, such as `{{report.rows[0].amount}}`. If the root is null, no template can
 * name the value, so this function returns the path only.
 */
export function templateText(path: Path, root: string | null): string {
  return root === null ? pathText(path, "") : `{{${pathText(path, root)}}}`;
}
