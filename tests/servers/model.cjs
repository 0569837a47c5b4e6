// Serves a mock model of npm's @copilotkit/aimock. It returns the given answers in order, and then repeats the last one.
//
//   node model.cjs NODE_MODULES FILE
//
// FILE contains `{"answers": […], "chaos": {…}}`: answers in the format of aimock, and aimock's options for injected faults.
// Prints its port, and ends when its standard input closes.

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
