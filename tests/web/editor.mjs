// The editor of plans: colours, the search for a tool, all fields of a step, and the input of an earlier execution.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, addStep, close, open, says, until, violations, violationsInBothColours, withBrowser } from './harness.mjs';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

const draftOf = async (page) => JSON.parse(await page.getByLabel('The plan as JSON').inputValue());

test('a tool is found by its purpose, and the form has all fields of a step', async () => {
  const page = await open(server, '/new');
  await page.getByRole('button', { name: 'write the plan as JSON' }).click();
  await page.getByText('Plan is valid.').waitFor();
  await page.getByLabel('Add a step').fill('unchanged');
  await page.getByLabel('Add a step').fill('sleep');
  const offers = page.getByRole('listbox', { name: 'Tools' });
  await offers.getByRole('option', { name: /flow\.sleep/ }).waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await page.keyboard.press('Escape');
  await addStep(page, 'flow.echo');
  const form = page.getByRole('region', { name: 'Step flow.echo' });
  await form.getByText('More fields').click();
  await form.getByLabel('Attempts').fill('3');
  await form.getByLabel('First pause, in ms').fill('50');
  await form.getByLabel('Time limit, in ms').fill('2000');
  await form.getByLabel('Missing fields of templates').selectOption('false');
  await form.getByLabel('Variables from the output').fill('{"a": "b"}');
  await form.getByLabel('Compensate with').fill('{"name": "flow.noop"}');
  const { id, ...rest } = (await draftOf(page)).tools.at(-1);
  assert.equal(id, 'flow.echo');
  assert.deepEqual(rest, {
    name: 'flow.echo',
    parameters: {},
    retry: { maxAttempts: 3, backoffMs: 50 },
    timeoutMs: 2000,
    strictTemplates: false,
    outputMapping: { a: 'b' },
    compensate: { name: 'flow.noop' },
  });
  assert.deepEqual(await violations(page), []);
  await form.getByLabel('Id', { exact: true }).fill('copy');
  await form.getByLabel('Id', { exact: true }).press('Enter');
  await page.getByRole('region', { name: 'Step copy' }).waitFor();
  assert.equal((await draftOf(page)).tools.at(-1).id, 'copy');
  await close(page);
});

test('the text has colours at every scroll position, and an invalid text veils the drawing', async () => {
  const tools = Array.from({ length: 60 }, (_, n) => ({ id: `s${n}`, name: 'flow.echo', parameters: { n, text: n > 0 ? `{{s${n - 1}.n}}` : 'x' } }));
  const { planId } = await server.plan(tools, 'colours');
  const page = await open(server, `/plans/${planId}`);
  const text = page.getByLabel('The plan as JSON');
  await page.locator('.colour-key', { hasText: '"tools"' }).waitFor();
  await text.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await page.locator('.colour-template', { hasText: '{{s58.n}}' }).waitFor();
  // The letters of the lines behind the text area stand where the text area has its own.
  const shift = await page.evaluate(() => {
    const area = document.querySelector('.editor textarea');
    const line = [...document.querySelectorAll('.editor-line')].find((one) => one.textContent.includes('{{s58.n}}'));
    const at = area.value.split('\n').findIndex((one) => one.includes('{{s58.n}}'));
    const expected = area.getBoundingClientRect().top + 10 + at * 19 - area.scrollTop;
    return Math.abs(line.getBoundingClientRect().top - expected);
  });
  assert.ok(shift < 4, `${shift} pixels apart`);
  assert.equal(await page.locator('.veil').count(), 0);
  await text.evaluate((element) => {
    element.value = `${element.value.slice(0, -3)},,`;
    element.dispatchEvent(new Event('input', { bubbles: true }));
  });
  await page.locator('.veil').getByText('The drawing shows the last valid text.').waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await close(page);
});

test('a plan runs with the input of an earlier execution', async () => {
  const { planId } = await server.plan([{ id: 'greet', name: 'flow.echo', parameters: { text: '{{input.name}}' } }], 'again with the same data');
  const { executePlan } = await server.ask('mutation($id: ID!) { executePlan(planId: $id, options: { input: { name: "Ada" } }) { executionId } }', { id: planId });
  await server.reaches(executePlan.executionId, 'COMPLETED');
  const page = await open(server, `/plans/${planId}`);
  await page.getByRole('button', { name: 'Run with options…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Run with the data of').selectOption(executePlan.executionId);
  await until(async () => JSON.parse(await dialog.getByLabel(/^Input, as JSON/).inputValue()).name === 'Ada', 'the input is filled in');
  await dialog.getByRole('button', { name: 'Run it' }).click();
  await page.waitForURL(/\/executions\/exec_/);
  await says(page, 'Completed');
  const id = /exec_[^?]*/.exec(page.url())[0];
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { outputs } }', { id });
  assert.deepEqual(execution.outputs, { greet: { text: 'Ada' } });
  await close(page);
});
