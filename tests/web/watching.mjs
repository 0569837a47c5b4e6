// Executions that are watched: live, across a crash of the server, and back in time.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, until, withBrowser } from './harness.mjs';

const WAITS = [
  { id: 'first', name: 'flow.echo', parameters: { n: 1 } },
  { id: 'gate', name: 'flow.wait', parameters: { name: 'go' }, dependsOn: 'first' },
  { id: 'last', name: 'flow.echo', parameters: { heard: '{{gate}}' } },
];

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

test('an execution changes under the eyes of who watches it', async () => {
  const { executionId } = await server.execute(WAITS, 'wait for the word');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'first', 'SUCCEEDED');
  await shows(page, 'gate', 'WAITING');
  await shows(page, 'last', 'PENDING');
  await says(page, 'Waiting');
  await server.signal(executionId, 'go', { word: 'now' });
  await shows(page, 'gate', 'SUCCEEDED');
  await shows(page, 'last', 'SUCCEEDED');
  await says(page, 'Completed');
  await page.locator('[data-step="last"] button').click();
  await page.locator('.inspector .json', { hasText: 'now' }).first().waitFor();
  await close(page);
});

test('a step changes its colour in the graph', async () => {
  const { executionId } = await server.execute(WAITS, 'colours');
  const page = await open(server, `/executions/${executionId}`);
  await page.locator('canvas[data-nodes="3"]').waitFor();
  const colours = () =>
    page.evaluate(() => {
      const canvas = document.querySelector('canvas[data-nodes]');
      const style = getComputedStyle(canvas);
      const wanted = ['good', 'waiting', 'idle'].map((it) => [it, style.getPropertyValue(`--${it}`).trim().slice(1)]);
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const found = new Map();
      for (let at = 0; at < data.length; at += 4) {
        const colour = [data[at], data[at + 1], data[at + 2]].map((it) => it.toString(16).padStart(2, '0')).join('');
        if (data[at + 3] === 255) found.set(colour, (found.get(colour) ?? 0) + 1);
      }
      return Object.fromEntries(wanted.map(([name, colour]) => [name, found.get(colour) ?? 0]));
    });
  await until(async () => (await colours()).waiting > 20, 'one step waits in the picture');
  const before = await colours();
  await server.signal(executionId, 'go');
  await until(async () => (await colours()).waiting === 0, 'none waits any more');
  assert.ok((await colours()).good > before.good * 2, 'three are done where one was');
  await close(page);
});

test('a server that is killed and comes back is noticed, and nothing is missed', async () => {
  const { executionId } = await server.execute(WAITS, 'survive');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  const list = await open(server, '/');
  await shows(page, 'gate', 'WAITING');
  await server.kill();
  for (const it of [page, list]) await it.getByText('Connection lost – reconnecting').waitFor();
  await server.begin();
  // This happens before the page knows that it can ask again.
  await server.signal(executionId, 'go');
  for (const it of [page, list]) await it.getByText('Connection lost – reconnecting').waitFor({ state: 'detached' });
  await shows(page, 'last', 'SUCCEEDED');
  await says(page, 'Completed');
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { seq } }', { id: executionId });
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByText(`${execution.seq} events`, { exact: true }).waitFor();
  await list.locator(`[data-state="COMPLETED"]`).first().waitFor();
  await close(page);
  await close(list);
});

test('the log can be gone back through', async () => {
  const { executionId } = await server.execute(WAITS, 'past');
  await server.signal(executionId, 'go');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'last', 'SUCCEEDED');
  const moment = page.getByLabel('Moment of the log');
  await moment.focus();
  await page.keyboard.press('Home');
  for (const step of ['first', 'gate', 'last']) await shows(page, step, 'PENDING');
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowRight');
  await shows(page, 'first', 'SUCCEEDED');
  await shows(page, 'last', 'PENDING');
  await page.getByRole('button', { name: 'To the end' }).click();
  await shows(page, 'last', 'SUCCEEDED');
  await close(page);
});

const WORDS = { WAITING: 'Waiting', COMPLETED: 'Completed', FAILED: 'Failed', CANCELLED: 'Cancelled', PAUSED: 'Paused' };

for (const [name, tools, options, state, steer] of [
  [
    'loops, retries, conditions and approvals',
    [
      { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
      { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}' },
      { id: 'none', name: 'flow.echo', parameters: {}, forEach: '{{list.nothing}}', onError: 'continue' },
      { id: 'flaky', name: 'flow.fail', parameters: { message: 'once', times: 1, retryable: true }, retry: { maxAttempts: 3, backoffMs: 1 } },
      { id: 'ignored', name: 'flow.fail', parameters: { message: 'always' }, onError: 'ignore' },
      { id: 'not', name: 'flow.noop', parameters: {}, when: 'steps["list"].items.size() > 5' },
      { id: 'behind', name: 'flow.noop', parameters: {}, dependsOn: ['not'] },
      { id: 'decide', name: 'flow.fail', parameters: { message: 'what now' }, onError: 'wait' },
      { id: 'signal', name: 'flow.wait', parameters: { name: 'never' } },
      { id: 'asks', name: 'flow.noop', parameters: {}, dependsOn: ['each'], requiresApproval: true },
      { id: 'last', name: 'flow.noop', parameters: {}, dependsOn: ['asks'] },
    ],
    {},
    'WAITING',
  ],
  [
    'what is undone',
    [
      { id: 'one', name: 'flow.echo', parameters: { n: 1 }, compensate: { name: 'flow.echo', parameters: { undo: 1 } } },
      { id: 'two', name: 'flow.echo', parameters: { n: 2 }, dependsOn: ['one'] },
      { id: 'bad', name: 'flow.fail', parameters: { message: 'no' }, dependsOn: ['two'] },
      { id: 'never', name: 'flow.noop', parameters: {}, dependsOn: ['bad'] },
    ],
    { compensateOnFailure: true },
    'FAILED',
  ],
  [
    'what is cancelled',
    [
      { id: 'one', name: 'flow.echo', parameters: { n: 1 } },
      { id: 'wait', name: 'flow.wait', parameters: { name: 'never' }, dependsOn: ['one'] },
      { id: 'never', name: 'flow.noop', parameters: {}, dependsOn: ['wait'] },
    ],
    {},
    'CANCELLED',
    (id) => server.ask('mutation($id: ID!) { cancelExecution(executionId: $id) { state } }', { id }),
  ],
  ['a dry run', WAITS, { dryRun: true }, 'COMPLETED'],
]) {
  test(`the page comes to the same states as the server: ${name}`, async () => {
    const { executionId } = await server.execute(tools, name, options);
    if (steer) {
      await server.reaches(executionId, 'WAITING');
      await steer(executionId);
    }
    await server.reaches(executionId, state);
    const query = 'query($id: ID!) { execution(executionId: $id) { steps { stepId state attempts } } }';
    const { execution } = await server.ask(query, { id: executionId });
    const page = await open(server, `/executions/${executionId}?view=steps`);
    for (const it of execution.steps) await shows(page, it.stepId, it.state);
    await says(page, WORDS[state]);
    await close(page);
  });
}

test('the list shows what is new without being asked', async () => {
  const page = await open(server, '/');
  const { requestId, executionId } = await server.execute(WAITS, 'a newcomer');
  const row = page.locator(`[data-id="${requestId}"]`);
  await row.waitFor();
  await page.locator(`[data-id="${requestId}"][data-state="WAITING"]`).waitFor();
  await server.signal(executionId, 'go');
  await page.locator(`[data-id="${requestId}"][data-state="COMPLETED"]`).waitFor();
  await page.getByLabel('Search requests').fill('newcomer');
  await page.waitForURL(/search=newcomer/);
  await until(async () => (await page.locator('.list-row').count()) === 1, 'one row fits');
  await page.reload();
  assert.equal(await page.getByLabel('Search requests').inputValue(), 'newcomer');
  await row.getByRole('link').click();
  await page.waitForURL(`**/requests/${requestId}`);
  await page.getByRole('link', { name: new RegExp(executionId) }).click();
  await page.waitForURL(`**/executions/${executionId}`);
  await close(page);
});
