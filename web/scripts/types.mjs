// Writes `src/api/generated.ts` from the server's schema and the page's operations: the text of each operation, and
// the types of its variables and its answer. Fails if an operation uses a field that the schema lacks.

import { readFileSync, writeFileSync } from "node:fs";
import {
  buildSchema,
  getNamedType,
  isEnumType,
  isInputObjectType,
  isListType,
  isNonNullType,
  Kind,
  parse,
  print,
  stripIgnoredCharacters,
  typeFromAST,
  validate,
} from "graphql";

const at = (path) => new URL(path, import.meta.url);
const schema = buildSchema(readFileSync(at("../../graphql/schema.graphql"), "utf8"));
const document = parse(readFileSync(at("../src/api/operations.graphql"), "utf8"));

const examples = parse(readFileSync(at("../src/graphiql/examples.graphql"), "utf8"));

const mistakes = [...validate(schema, document), ...validate(schema, examples)];
if (mistakes.length > 0) {
  console.error(mistakes.map(String).join("\n\n"));
  process.exit(1);
}

const scalars = { ID: "string", String: "string", DateTime: "string", Int: "number", Float: "number", Boolean: "boolean", JSON: "Json" };
const fragments = new Map(
  document.definitions.filter((it) => it.kind === Kind.FRAGMENT_DEFINITION).map((it) => [it.name.value, it]),
);
const named = new Set();

function typeOf(type, inner) {
  if (isNonNullType(type)) return bare(type.ofType, inner);
  return `${bare(type, inner)} | null`;
}

function bare(type, inner) {
  if (isListType(type)) {
    const item = typeOf(type.ofType, inner);
    return item.includes("|") ? `(${item})[]` : `${item}[]`;
  }
  return inner(type);
}

function leaf(type) {
  if (scalars[type.name]) return scalars[type.name];
  named.add(type.name);
  return type.name;
}

/** Returns the fields of a selection and of its fragments, by their names in the answer. */
function fieldsOf(selection, parent, found = new Map()) {
  for (const it of selection.selections) {
    if (it.kind === Kind.FRAGMENT_SPREAD) {
      fieldsOf(fragments.get(it.name.value).selectionSet, parent, found);
    } else if (it.kind === Kind.INLINE_FRAGMENT) {
      fieldsOf(it.selectionSet, parent, found);
    } else {
      const name = it.alias?.value ?? it.name.value;
      found.set(name, [...(found.get(name) ?? []), it]);
    }
  }
  return found;
}

/** Names of answer fields that can contain any JSON. Their numbers keep all digits. */
const exact = new Map();

function note(name, isJson) {
  if ((exact.get(name) ?? isJson) !== isJson) throw new Error(`\`${name}\` is JSON in one operation, and something else in another: give one of them another name`);
  exact.set(name, isJson);
}

function shapeOf(selection, parent) {
  const fields = [...fieldsOf(selection, parent)].map(([name, nodes]) => {
    if (nodes[0].name.value === "__typename") return `${name}: "${parent.name}"`;
    const { type } = parent.getFields()[nodes[0].name.value];
    const selections = nodes.flatMap((it) => it.selectionSet?.selections ?? []);
    note(name, getNamedType(type).name === "JSON");
    const inner = (own) =>
      selections.length > 0 ? shapeOf({ selections }, getNamedType(own)) : leaf(own);
    return `${name}: ${typeOf(type, inner)}`;
  });
  return `{ ${fields.join("; ")} }`;
}

function fragmentsIn(node, found = new Set()) {
  for (const it of node.selectionSet?.selections ?? []) {
    if (it.kind === Kind.FRAGMENT_SPREAD && !found.has(it.name.value)) {
      found.add(it.name.value);
      fragmentsIn(fragments.get(it.name.value), found);
    }
    fragmentsIn(it, found);
  }
  return found;
}

function inputs(type, done = new Map()) {
  if (done.has(type.name) || scalars[type.name]) return done;
  if (isEnumType(type)) {
    done.set(type.name, `export type ${type.name} = ${type.getValues().map((it) => `"${it.name}"`).join(" | ")};`);
  } else if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields());
    done.set(type.name, "");
    const lines = fields.map((it) => {
      inputs(getNamedType(it.type), done);
      const isOptional = !isNonNullType(it.type) || it.defaultValue !== undefined;
      return `  ${it.name}${isOptional ? "?" : ""}: ${typeOf(it.type, (own) => leaf(own))};`;
    });
    done.set(type.name, `export interface ${type.name} {\n${lines.join("\n")}\n}`);
  }
  return done;
}

const out = [];
const declared = new Map();
for (const it of document.definitions) {
  if (it.kind === Kind.FRAGMENT_DEFINITION) {
    const parent = schema.getType(it.typeCondition.name.value);
    out.push(`export type ${it.name.value} = ${shapeOf(it.selectionSet, parent)};`);
    continue;
  }
  const root = schema.getRootType(it.operation);
  const variables = (it.variableDefinitions ?? []).map((variable) => {
    const type = typeFromAST(schema, variable.type);
    inputs(getNamedType(type), declared);
    const isOptional = !isNonNullType(type) || variable.defaultValue;
    return `${variable.variable.name.value}${isOptional ? "?" : ""}: ${typeOf(type, leaf)}`;
  });
  const name = it.name.value;
  const used = [...fragmentsIn(it)].map((fragment) => fragments.get(fragment));
  const text = stripIgnoredCharacters([it, ...used].map((part) => print(part)).join("\n"));
  out.push(`export type ${name}Result = ${shapeOf(it.selectionSet, root)};`);
  out.push(`export type ${name}Variables = { ${variables.join("; ")} };`);
  out.push(`export const ${name}: Operation<${name}Result, ${name}Variables> = ${JSON.stringify(text)};`);
}
for (const name of named) inputs(schema.getType(name), declared);

const fields = Object.fromEntries(
  ["PlanInput", "ToolExecutionInput", "RetryInput"].map((it) => [it, Object.keys(schema.getType(it).getFields())]),
);

const text = [
  "// Written by `npm run types` from the server's schema and `operations.graphql`. Do not edit.",
  "",
  'import type { Num } from "./json";',
  "",
  "/** Any JSON value. A number that JavaScript would change is a `Num`. */",
  "export type Json = null | boolean | number | Num | string | Json[] | { [key: string]: Json };",
  "/** The text of a GraphQL operation, with the types of its result and its variables. */",
  "export type Operation<Result, Variables> = string & { readonly _?: (it: Variables) => Result };",
  "",
  "/** The response fields that hold any JSON. Their numbers must be read without a loss. */",
  `export const EXACT: ReadonlySet<string> = new Set(${JSON.stringify([...exact].filter(([, it]) => it).map(([name]) => name).sort())});`,
  "",
  "/** The names of the fields of the input types for a plan. */",
  `export const FIELDS = ${JSON.stringify(fields, null, 2)} as const;`,
  "",
  ...[...declared].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, it]) => it),
  "",
  ...out,
  "",
].join("\n");
writeFileSync(at("../src/api/generated.ts"), text);

// `docs/errors.md` is the only place that explains the codes, so the page's table is made from it.
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "").trim();
const errors = readFileSync(at("../../docs/errors.md"), "utf8");
const codes = {};
for (const line of errors.split("\n")) {
  const cells = line.startsWith("| `") ? line.slice(1, -1).split(" | ") : [];
  if (cells.length !== 3) continue;
  for (const [, code] of cells[0].matchAll(/`([^`]+)`/g)) codes[code] = [plain(cells[1]), plain(cells[2])];
}
if (!codes["tool.timeout"] || !codes["plan.cycle"]) throw new Error("docs/errors.md has no tables of codes any more");
writeFileSync(
  at("../src/api/codes.ts"),
  [
    "// Written by `npm run types` from `docs/errors.md`. Do not edit.",
    "",
    "/** For each code of an error, its meaning and what to do about it. */",
    `export const CODES: Record<string, readonly [string, string]> = ${JSON.stringify(codes, null, 2)};`,
    "",
  ].join("\n"),
);
