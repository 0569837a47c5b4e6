// The logs of a whole execution, and the comparison of two executions.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

async function checkWidth(page) {
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
}

test('the logs of all steps are one list with a filter and a download', async () => {
  const steps = [
    { id: 'first', name: 'flow.fail', parameters: { message: 'not yet', retryable: true, times: 1 }, retry: { maxAttempts: 2, backoffMs: 1 } },
    { id: 'second', name: 'flow.fail', parameters: { message: `line one\n${'x'.repeat(4_000)}\nthe last line` }, onError: 'continue', dependsOn: 'first' },
  ];
  const { executionId } = await server.execute(steps, 'logs');
  await server.reaches(executionId, 'COMPLETED');
  for (const options of [{}, PHONE]) {
    const page = await open(server, `/executions/${executionId}?view=logs`, options);
    const rows = page.getByRole('list', { name: 'Logs' }).getByRole('listitem');
    await rows.filter({ hasText: 'not yet' }).waitFor();
    await rows.filter({ hasText: 'line one' }).waitFor();
    assert.deepEqual(await (options === PHONE ? violations : violationsInBothColours)(page), []);
    await checkWidth(page);
    await page.getByLabel('Filter logs').fill('second');
    await rows.filter({ hasText: 'not yet' }).waitFor({ state: 'detached' });
    const waits = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).click();
    let text = '';
    for await (const part of await (await waits).createReadStream()) text += part;
    // The page has only the beginning of long texts, but the file has all of them.
    for (const part of ['first attempt 1', 'not yet', 'the last line']) assert.ok(text.includes(part), text.slice(0, 300));
    await close(page);
  }
});

test('two executions of a plan are compared by state, time and output', async () => {
  const steps = [
    { id: 'look', name: 'flow.echo', parameters: { amount: '{{input.amount}}' } },
    { id: 'same', name: 'flow.echo', parameters: { fixed: true } },
    { id: 'check', name: 'flow.noop', when: 'input.amount > 10' },
  ];
  const { planId } = await server.plan(steps, 'to compare');
  const run = async (amount) => {
    const { executePlan } = await server.ask('mutation($id: ID!, $input: JSON) { executePlan(planId: $id, options: { input: $input }) { executionId } }', { id: planId, input: { amount } });
    await server.reaches(executePlan.executionId, 'COMPLETED');
    return executePlan.executionId;
  };
  const [a, b] = [await run(5), await run(50)];
  for (const options of [{}, PHONE]) {
    const page = await open(server, `/executions/${b}`, options);
    await page.getByRole('link', { name: 'Compare…' }).click();
    await page.getByRole('button', { name: new RegExp(a) }).click();
    await page.getByText('2 of 3 steps differ.').waitFor();
    await page.getByRole('region', { name: 'Input' }).getByText('"amount": 50').waitFor();
    await page.getByRole('row', { name: /^check/ }).getByText('Skipped').waitFor();
    await page.getByRole('row', { name: /^look/ }).getByRole('button', { name: 'differs' }).click();
    await page.getByLabel('Differences').last().getByText('+ "amount": 50').waitFor();
    await page.getByLabel('Differences only').check();
    await page.getByRole('row', { name: /^same/ }).waitFor({ state: 'detached' });
    assert.deepEqual(await (options === PHONE ? violations : violationsInBothColours)(page), []);
    await checkWidth(page);
    await page.getByRole('button', { name: 'Swap' }).click();
    await page.waitForURL(`**/compare?a=${b}&b=${a}`);
    await page.getByText('2 of 3 steps differ.').waitFor();
    await close(page);
  }
  const page = await open(server, '/executions');
  for (const id of [a, b]) await page.getByLabel(`Choose ${id}`).check();
  await page.getByRole('link', { name: 'Compare', exact: true }).click();
  await page.getByText('2 of 3 steps differ.').waitFor();
  await visit(page, server, '/compare');
  await page.getByRole('heading', { name: 'Choose two executions' }).waitFor();
  await until(async () => (await violations(page)).length === 0, 'axe finds no violation');
  await close(page);
});
