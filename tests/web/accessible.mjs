// Accessibility: axe finds no violation on any page, in the light and the dark theme, on a large screen and on a phone.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const PLAN = [
  { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
  { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}' },
  { id: 'fails', name: 'flow.fail', parameters: { message: 'as it must' }, onError: 'continue', dependsOn: 'list', retry: { maxAttempts: 2, backoffMs: 1 } },
  { id: 'skipped', name: 'flow.noop', parameters: {}, dependsOn: 'fails' },
  { id: 'asks', name: 'flow.echo', parameters: { all: '{{each}}' }, requiresApproval: true },
];

let server;
let executionId;
let requestId;
withBrowser();
before(async () => {
  server = await Server.start();
  ({ executionId, requestId } = await server.execute(PLAN, 'a bit of everything'));
  await server.reaches(executionId, 'WAITING');
  await server.ask('mutation { addAction(input: { name: "write", description: "Writes" }) { warnings } }');
  await server.ask('mutation { addAction(input: { name: "read", description: "Reads", next: [{ name: "write", score: 0.8 }], tools: [{ name: "flow.echo", score: 0.9 }] }) { warnings } }');
});
after(() => server?.stop());

const places = () => [
  ['/', '.tile'],
  ['/requests', '.list-row'],
  ['/approvals', '.approval .call'],
  ['/saved', '.empty'],
  ['/scheduled', '.empty'],
  ['/nodes', '.figures'],
  ['/usage', 'table'],
  ['/compare', '.empty'],
  [`/executions/${executionId}?view=logs`, '.log-row'],
  ['/requests?search=nothing-like-it', '.empty'],
  ['/executions?state=WAITING', '.list-row'],
  ['/executions?state=WAITING,FAILED&tool=flow.fail&since=7d', '.chips'],
  [`/requests/${requestId}`, '.list-row'],
  [`/requests/${requestId}?view=planning`, '[role=tabpanel]'],
  [`/requests/${requestId}?view=versions`, '.card'],
  [`/executions/${executionId}?step=fails`, '.fault'],
  [`/executions/${executionId}?view=timeline&step=each`, '.inspector .items'],
  [`/executions/${executionId}?view=steps&step=asks`, '.inspector .buttons .primary'],
  [`/executions/${executionId}?view=events`, '.event-row'],
  [`/executions/${executionId}?view=results`, '.results .json'],
  ['/new', '#query'],
  ['/tools', '.tool-row'],
  ['/tools/blog.createAuthor', '.inspector .fields'],
  ['/tools?view=selection&query=write', 'table .score'],
  ['/tools?view=collisions', '.empty, table'],
  ['/toolkit?actions=read&hops=1', '.inspector .plain-list'],
  ['/executions/exec_1_aaaaaaaaa', '.empty'],
];

const PHONE = { viewport: { width: 375, height: 700 }, hasTouch: true };

for (const [name, options, findAll] of [
  ['light and dark', {}, violationsInBothColours],
  ['on a phone', PHONE, violations],
]) {
  test(`axe finds no violations on any page, ${name}`, async () => {
    const found = [];
    const page = await open(server, '/', options);
    for (const [path, there] of places()) {
      await visit(page, server, path);
      await page.locator(there).first().waitFor();
      found.push(...(await findAll(page)).map((it) => ({ path, ...it })));
      const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= room, `${path}: ${wide} pixels wide in a window of ${room}`);
    }
    await close(page);
    assert.deepEqual(found, []);
  });
}

test('axe finds no violations on the list of steps and on pages that are loading', async () => {
  const steps = [
    { id: 'done', name: 'flow.echo', parameters: {} },
    { id: 'missed', name: 'flow.noop', parameters: {}, when: 'false' },
    { id: 'asks', name: 'flow.noop', parameters: {}, requiresApproval: true, dependsOn: 'done' },
    { id: 'later', name: 'flow.noop', parameters: {}, dependsOn: 'asks' },
  ];
  const { executionId } = await server.execute(steps, 'states as words');
  await server.reaches(executionId, 'WAITING');
  const page = await open(server, '/');
  for (const { id } of steps) {
    await visit(page, server, `/executions/${executionId}?view=steps&step=${id}`);
    await page.locator('[data-step="later"][data-state="PENDING"]').waitFor();
    await page.locator('.inspector .section').first().waitFor();
    assert.deepEqual(await violationsInBothColours(page), [], id);
  }
  // The server does not answer, so the pages show that they are loading.
  await page.route('**/graphql', () => {});
  for (const path of [`/executions/${executionId}`, `/requests/${requestId}`, '/toolkit']) {
    await visit(page, server, path);
    await page.locator('.loading').waitFor();
    assert.deepEqual(await violationsInBothColours(page), [], path);
  }
  await close(page);
});

test('axe finds no violations on the empty lists of a new installation', async () => {
  const empty = await Server.start();
  for (const path of ['/', '/requests', '/executions']) {
    const page = await open(empty, path);
    await page.getByRole('heading', { name: 'No requests yet' }).waitFor();
    assert.deepEqual(await violationsInBothColours(page), [], path);
    await close(page);
  }
  await empty.stop();
});

test('the page uses the dark theme if the system does', async () => {
  const page = await open(server, `/executions/${executionId}?step=fails`, { colorScheme: 'dark' });
  await page.locator('.fault').first().waitFor();
  await page.locator('html[data-theme="dark"]').waitFor({ state: 'attached' });
  assert.deepEqual(await violations(page), []);
  await close(page);
});

test('axe finds no violations in a dialog', async () => {
  const page = await open(server, `/executions/${executionId}?step=asks`);
  await page.locator('.inspector').getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('dialog').waitFor();
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await close(page);
});

test('axe finds no violations in the plan editor and in the dialog that runs a plan', async () => {
  const { planId } = await server.plan([{ id: 'a', name: 'flow.echo', parameters: { v: '{{input.x}}' } }], 'to be written');
  for (const [options, findAll] of [[{}, violationsInBothColours], [PHONE, violations]]) {
    const page = await open(server, `/plans/${planId}`, options);
    const text = page.getByLabel('The plan as JSON');
    await until(async () => Number(await page.locator('.tool-picker').getAttribute('data-tools')) > 2, 'the tools are loaded');
    await text.evaluate((it) => {
      it.focus();
      const at = it.value.indexOf('flow.echo') + 5;
      it.setSelectionRange(at, at);
      it.setRangeText(' ', at, at, 'end');
      it.setSelectionRange(at, at);
      it.dispatchEvent(new Event('input', { bubbles: true }));
    });
    await page.getByRole('listbox').waitFor();
    assert.deepEqual(await findAll(page), []);
    await page.getByRole('listbox').waitFor();
    await page.keyboard.press('Escape');
    await page.getByLabel('Diagnostics').waitFor();
    assert.deepEqual(await findAll(page), []);
    await page.reload();
    await page.getByRole('button', { name: 'Discard the earlier text' }).click();
    await page.getByText('Plan is valid.').waitFor();
    await page.getByRole('button', { name: 'Run with options…' }).click();
    await page.getByRole('dialog').waitFor();
    assert.deepEqual(await findAll(page), []);
    await close(page);
  }
});
