// Writes a Brotli and a gzip copy beside each built file that compression makes smaller, so that the server never
// compresses. Also prints the compressed size of the first view, and fails if it exceeds the limit.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
/** Bytes of a file that fits into one network packet without compression. */
const MIN_BYTES = 1_400;
/** Maximum compressed size of the first view, in bytes. */
const MAX_FIRST_VIEW_BYTES = 90_000;

const files = readdirSync(dist, { recursive: true }).filter((it) => statSync(join(dist, it)).isFile());
const sizes = new Map();
for (const name of files.sort()) {
  const bytes = readFileSync(join(dist, name));
  const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } });
  const gzip = gzipSync(bytes, { level: 9 });
  if (bytes.length > MIN_BYTES) writeFileSync(join(dist, `${name}.br`), brotli);
  if (bytes.length > MIN_BYTES) writeFileSync(join(dist, `${name}.gz`), gzip);
  sizes.set(name, [bytes.length, Math.min(brotli.length, bytes.length), Math.min(gzip.length, bytes.length)]);
}

for (const [name, [plain, brotli, gzip]] of sizes) {
  console.log(`${name.padEnd(44)} ${String(plain).padStart(8)} B  br ${String(brotli).padStart(7)}  gzip ${String(gzip).padStart(7)}`);
}
const index = readFileSync(join(dist, "index.html"), "utf8");
const first = [...sizes].filter(([name]) => name === "index.html" || index.includes(`/${name}`));
const total = first.reduce((sum, [, [, , gzip]]) => sum + gzip, 0);
console.log(`first view: ${total} bytes with gzip (at most ${MAX_FIRST_VIEW_BYTES})`);
if (total > MAX_FIRST_VIEW_BYTES) process.exit(1);
