/** Reads and writes JSON without a loss. Numbers that JavaScript cannot represent keep their text. */

import type { Json } from "./generated";

/** A number whose text JavaScript would change, such as `9007199254740993` or `1.0`. */
export class Num {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }
}

/** A JSON object. */
export type Fields = { [key: string]: Json };

export function isFields(it: Json | undefined): it is Fields {
  return it !== null && typeof it === "object" && !Array.isArray(it) && !(it instanceof Num);
}

export function isNumber(it: Json | undefined): it is number | Num {
  return typeof it === "number" || it instanceof Num;
}

/** Maximum nesting of values. The server accepts only values with fewer levels. */
const MAX_DEPTH = 512;
/**
 * Matches text with a number that JavaScript might change: many digits, a trailing zero in a fraction, an exponent, or
 * a negative zero.
 */
const SUSPICIOUS = /\d{16}|\.\d*0(?!\d)|\d[eE]|-0/;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** Reads a number. Returns a `Num` if JavaScript would write it in another way. */
export function readNumber(text: string): number | Num {
  const value = Number(text);
  return String(value) === text ? value : new Num(text);
}

/**
 * Reads JSON. Throws a `SyntaxError`, as `JSON.parse` does. With `names`, only values below fields with these names
 * keep the text of their numbers.
 */
export function parse(text: string, names: ReadonlySet<string> | null = null): Json {
  // `JSON.parse` is much faster, and has better error messages.
  if (!SUSPICIOUS.test(text)) return JSON.parse(text) as Json;
  try {
    return new Parser(text, names).whole();
  } catch (error) {
    if (error instanceof RangeError) throw new SyntaxError("it is nested too deeply");
    JSON.parse(text);
    throw error;
  }
}

/**
 * A reviver for `JSON.parse`, for callers that cannot use `parse`. Browsers before 2025 do not pass the source text of
 * numbers.
 */
export function revive(_: string, value: unknown, context?: { source?: string }): unknown {
  return typeof value === "number" && context?.source !== undefined ? readNumber(context.source) : value;
}

class Parser {
  #at = 0;
  #depth = 0;
  #isExact: boolean;
  constructor(
    readonly text: string,
    readonly names: ReadonlySet<string> | null,
  ) {
    this.#isExact = names === null;
  }

  whole(): Json {
    const value = this.#value();
    this.#space();
    if (this.#at < this.text.length) this.#fail();
    return value;
  }

  #fail(): never {
    throw new SyntaxError(`this is not JSON at position ${this.#at}`);
  }

  #space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.#at);
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return;
      this.#at += 1;
    }
  }

  #value(): Json {
    this.#space();
    switch (this.text[this.#at]) {
      case "{":
        return this.#nested(() => this.#object());
      case "[":
        return this.#nested(() => this.#list());
      case '"':
        return this.#string();
      case "t":
        return this.#word("true", true);
      case "f":
        return this.#word("false", false);
      case "n":
        return this.#word("null", null);
    }
    NUMBER.lastIndex = this.#at;
    const found = NUMBER.exec(this.text)?.[0] ?? this.#fail();
    this.#at += found.length;
    return this.#isExact ? readNumber(found) : Number(found);
  }

  #nested(read: () => Json): Json {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new RangeError();
    this.#at += 1;
    const value = read();
    this.#depth -= 1;
    return value;
  }

  #word(word: string, value: Json): Json {
    if (!this.text.startsWith(word, this.#at)) this.#fail();
    this.#at += word.length;
    return value;
  }

  /** Returns whether another element or field follows in an array or object. */
  #goesOn(end: string, isFirst: boolean): boolean {
    this.#space();
    if (this.text[this.#at] === end) {
      this.#at += 1;
      return false;
    }
    if (isFirst) return true;
    if (this.text[this.#at] !== ",") this.#fail();
    this.#at += 1;
    return true;
  }

  #list(): Json {
    const list: Json[] = [];
    while (this.#goesOn("]", list.length === 0)) list.push(this.#value());
    return list;
  }

  #object(): Json {
    const fields: Fields = {};
    for (let isFirst = true; this.#goesOn("}", isFirst); isFirst = false) {
      this.#space();
      const name = this.#string();
      this.#space();
      if (this.text[this.#at] !== ":") this.#fail();
      this.#at += 1;
      const wasExact = this.#isExact;
      // `names` does not apply to fields of the outermost object.
      this.#isExact ||= this.#depth > 1 && this.names?.has(name) === true;
      const value = this.#value();
      this.#isExact = wasExact;
      // An assignment to `__proto__` would change the prototype of the object.
      if (name === "__proto__") Object.defineProperty(fields, name, { value, enumerable: true, configurable: true, writable: true });
      else fields[name] = value;
    }
    return fields;
  }

  #string(): string {
    const begin = this.#at;
    if (this.text[begin] !== '"') this.#fail();
    for (let end = begin; ; ) {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) this.#fail();
      let slashes = 0;
      while (this.text[end - 1 - slashes] === "\\") slashes += 1;
      if (slashes % 2 === 1) continue;
      this.#at = end + 1;
      return JSON.parse(this.text.slice(begin, end + 1)) as string;
    }
  }
}

/** Writes JSON. `indent` is the number of spaces for each level. Undefined fields are left out. */
export function print(value: unknown, indent = 0): string {
  return written(value, indent, "\n") ?? "null";
}

function written(value: unknown, indent: number, line: string): string | undefined {
  if (value instanceof Num) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = line + " ".repeat(indent);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((it) => written(it, indent, inner) ?? "null")
    : Object.entries(value).flatMap(([name, it]) => {
        const text = written(it, indent, inner);
        return text === undefined ? [] : [`${JSON.stringify(name)}:${indent > 0 ? " " : ""}${text}`];
      });
  if (parts.length === 0) return `${open}${close}`;
  if (indent === 0) return `${open}${parts.join(",")}${close}`;
  return `${open}${inner}${parts.join(`,${inner}`)}${line}${close}`;
}
