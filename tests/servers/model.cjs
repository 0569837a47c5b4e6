// Serves a model of npm's @copilotkit/aimock that answers what it is told, one after another, and then the last for ever.
//
//   node model.cjs NODE_MODULES FILE
//
// FILE has `{"answers": […], "chaos": {…}}`: answers as aimock has them, and how often it behaves badly.
// Prints its port, and ends with its standard input.

const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');

const [modules, file] = process.argv.slice(2);
const { LLMock } = createRequire(path.join(modules, 'index.js'))('@copilotkit/aimock');
const { answers, chaos } = JSON.parse(fs.readFileSync(file, 'utf8'));

const mock = new LLMock({ port: 0, logLevel: 'silent', chaos, journalMaxEntries: 0 });
mock.on({ predicate: () => true }, () => (answers.length > 1 ? answers.shift() : answers[0]));
mock.start().then(() => console.log(mock.port));
process.stdin.on('end', () => process.exit(0)).resume();
