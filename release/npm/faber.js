#!/usr/bin/env node
// Starts the binary of the package that fits this machine, and ends as the binary ends.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

/** Returns the path of the binary. npm installs one of the packages, or both if it does not know the C library. */
function findBinary() {
  const packages = ["gnu", "musl"].map((library) => `faber-linux-${process.arch}-${library}`);
  const hasGlibc = Boolean(process.report?.getReport().header.glibcVersionRuntime);
  for (const name of hasGlibc ? packages : packages.reverse()) {
    try {
      return require.resolve(`${name}/faber`);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  console.error(`faber: no package has a binary for this machine (${process.platform}, ${process.arch})`);
  console.error(`faber: install one of ${packages.join(", ")}; \`npm install --omit=optional\` leaves them out`);
  return process.exit(3);
}

const child = spawn(findBinary(), process.argv.slice(2), { stdio: "inherit" });
// The terminal sends Ctrl-C to both processes. A client of an MCP server sends SIGTERM to this process only.
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
process.on("SIGINT", () => {});
child.on("error", (error) => {
  console.error(`faber: ${error.message}`);
  process.exit(3);
});
child.on("exit", (status, signal) => process.exit(status ?? 128 + constants.signals[signal]));
