// Forks: an ended execution runs again with another input, other parameters, given outputs or another version.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };
const CONFIG = { toolsets: [{ name: 'shop', source: { tools: [{ name: 'order', effect: 'once', run: { command: ['echo', 'ordered'] } }] } }] };
const STEPS = [
  { id: 'order', name: 'shop.order', parameters: { article: '{{input.article}}' } },
  { id: 'label', name: 'flow.echo', parameters: { country: '{{input.country}}' } },
  { id: 'check', name: 'flow.fail', when: "label.country != 'Peru'", dependsOn: 'order', parameters: { message: 'no carrier for {{label.country}}' } },
];

let server;
let id;
let request;
withBrowser();
before(async () => {
  server = await Server.start({ config: CONFIG });
  const started = await server.execute(STEPS, 'Send the book', { input: { article: 'book', country: 'Peruu' } });
  [id, request] = [started.executionId, started.requestId];
  await server.reaches(id, 'FAILED');
});
after(() => server?.stop());

async function openDialog(page) {
  await page.getByRole('button', { name: 'Fork…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading', { name: 'Fork this execution?' }).waitFor();
  return dialog;
}

/** Starts the fork, and waits until the page shows it. */
async function start(page, dialog) {
  await dialog.getByRole('button', { name: 'Fork', exact: true }).click();
  await page.getByRole('link', { name: `fork of ${id}` }).waitFor();
  return page.url().match(/exec_\w+/)[0];
}

test('a fork with another input keeps what it does not touch, and both executions are linked', async () => {
  const page = await open(server, `/executions/${id}`);
  const dialog = await openDialog(page);
  const kept = dialog.getByRole('list', { name: 'Kept steps' }).getByRole('listitem');
  await dialog.getByLabel('Input (JSON)').fill('{ "article": "book", "country": ');
  await dialog.getByRole('alert').waitFor();
  assert.ok(await dialog.getByRole('button', { name: 'Fork', exact: true }).isDisabled(), 'a text that is no JSON cannot be sent');
  await dialog.getByLabel('Input (JSON)').fill('{ "article": "book", "country": "Peru" }');
  await dialog.getByText('The outputs of 1 step are kept:').waitFor();
  assert.deepEqual(await kept.allTextContents(), ['order']);
  assert.deepEqual(await violationsInBothColours(page), []);
  const fork = await start(page, dialog);
  await says(page, 'Completed');
  await visit(page, server, `/executions/${id}`);
  await page.getByRole('list', { name: 'What goes on after it' }).getByRole('link', { name: fork }).click();
  await page.getByRole('link', { name: `fork of ${id}` }).waitFor();
  await close(page);
});

test('the dialog lists the calls with effects, and the fork makes them', async () => {
  const page = await open(server, `/executions/${id}`, PHONE);
  const dialog = await openDialog(page);
  await dialog.getByLabel('Input (JSON)').fill('{ "article": "pen", "country": "Peru" }');
  await dialog.getByText('No output is kept.').waitFor();
  const calls = dialog.getByLabel('Calls that are made').getByRole('listitem');
  assert.deepEqual(await calls.allTextContents(), ['order: 1 call of shop.order, made before']);
  assert.deepEqual(await violations(page), []);
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
  await start(page, dialog);
  await says(page, 'Completed');
  await close(page);
});

test('parameters of a step are changed, and become the next version of the plan', async () => {
  const page = await open(server, `/executions/${id}?view=steps`);
  const dialog = await openDialog(page);
  await dialog.getByLabel('Change a step').selectOption('label');
  await dialog.getByLabel('Parameters of label (JSON)').fill('{ "country": "Peru" }');
  await dialog.getByText('The outputs of 1 step are kept:').waitFor();
  await start(page, dialog);
  await says(page, 'Completed');
  await page.getByRole('link', { name: 'plan, version 2' }).waitFor();
  // The versions of a plan are those of its request.
  const { request: found } = await server.ask('query($id: ID!) { request(requestId: $id) { plans { version planId } } }', { id: request });
  assert.deepEqual(found.plans.map((plan) => plan.version).sort(), [1, 2]);
  // The first execution can be forked with the new version.
  await visit(page, server, `/executions/${id}?view=steps`);
  const again = await openDialog(page);
  await again.getByLabel('Version of the plan').selectOption(found.plans.find((plan) => plan.version === 2).planId);
  await again.getByText('The outputs of 1 step are kept:').waitFor();
  await start(page, again);
  await says(page, 'Completed');
  await close(page);
});

test('an output is given, and its step does not run', async () => {
  const page = await open(server, `/executions/${id}?view=steps`);
  const dialog = await openDialog(page);
  await dialog.getByLabel('Change a step').selectOption('label');
  await dialog.getByRole('button', { name: 'Output, without a call' }).click();
  // The field begins with the output of the execution.
  const output = dialog.getByLabel('Output of label (JSON)');
  assert.deepEqual(JSON.parse(await output.inputValue()), { country: 'Peruu' });
  await output.fill('{ "country": "Peru" }');
  await dialog.getByText(/The outputs of \d steps? are kept/).waitFor();
  await visit(page, server, `/executions/${await start(page, dialog)}?view=steps`);
  await says(page, 'Completed');
  await shows(page, 'check', 'SKIPPED');
  await close(page);
});
