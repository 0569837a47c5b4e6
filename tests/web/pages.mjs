// Pages about all executions: saved plans, scheduled executions, nodes, and the use of models and tools.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

async function checkLayout(page, findAll = violations) {
  assert.deepEqual(await findAll(page), []);
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
}

test('a plan is saved under a name, run with its form, and removed', async () => {
  const { planId } = await server.plan([{ id: 'greet', name: 'flow.echo', parameters: { text: 'Hello {{input.name}}' } }], 'greetings');
  const page = await open(server, '/saved');
  await page.getByRole('heading', { name: 'No saved plans yet' }).waitFor();
  await visit(page, server, `/plans/${planId}`);
  await page.getByRole('button', { name: 'Save as…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('greet');
  assert.deepEqual(JSON.parse(await dialog.getByLabel(/^Input as JSON Schema/).inputValue()), { name: { type: 'string' } });
  await checkLayout(page);
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.waitForURL('**/saved/greet');
  await page.getByLabel(/^name/).fill('Ada');
  await checkLayout(page, violationsInBothColours);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.waitForURL(/\/executions\/exec_/);
  await says(page, 'Completed');
  const id = /exec_[^?]*/.exec(page.url())[0];
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { outputs } }', { id });
  assert.deepEqual(execution.outputs, { greet: { text: 'Hello Ada' } });
  await visit(page, server, '/saved');
  await page.getByRole('link', { name: /greet.*greetings.*with a form/s }).click();
  await page.locator(`[data-id="${id}"]`).waitFor();
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('heading', { name: 'No saved plans yet' }).waitFor();
  await close(page);
});

test('scheduled executions are listed by their start, and can be cancelled', async () => {
  const starts = [7_200_000, 3_600_000].map((later) => new Date(Date.now() + later).toISOString());
  const [late, soon] = await Promise.all(starts.map((startAt, n) => server.execute([{ name: 'flow.noop' }], `scheduled ${n}`, { startAt })));
  const page = await open(server, '/scheduled');
  await page.locator(`tr[data-id="${late.executionId}"]`).waitFor();
  assert.deepEqual(await page.locator('tr[data-id]').evaluateAll((rows) => rows.map((row) => row.dataset.id)), [soon.executionId, late.executionId]);
  await checkLayout(page, violationsInBothColours);
  await page.locator(`tr[data-id="${soon.executionId}"]`).getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await server.reaches(soon.executionId, 'CANCELLED');
  await page.locator(`tr[data-id="${soon.executionId}"]`).waitFor({ state: 'detached' });
  await close(page);
});

test('the page of nodes shows workers, running calls, calls that limits hold back, and errors of toolsets', async (context) => {
  const work = { name: 'work', description: 'Works', parameters: { type: 'object' }, effect: 'read', run: { command: ['sleep', '600'] } };
  const config = {
    limits: { calls: [{ tool: 'shop.work', concurrency: 1 }] },
    toolsets: [
      { name: 'shop', source: { tools: [work] } },
      { name: 'broken', source: { mcp: { command: '/no/such/program' } } },
    ],
  };
  const own = await Server.start({ config });
  context.after(() => own.stop());
  const first = await own.execute([{ id: 'work', name: 'shop.work' }], 'runs on a node');
  await own.reaches(first.executionId, 'IN_PROGRESS');
  await own.execute([{ id: 'work', name: 'shop.work' }], 'is held back');
  // A toolset connects when a tool of it is needed.
  await own.ask('{ tools(toolSet: "broken") { name } }');
  const { workers } = await own.ask('{ workers { workerId node } }');
  for (const options of [{}, PHONE]) {
    const page = await open(own, '/nodes', options);
    await page.locator('.figures').getByText('Executions that it drives').waitFor();
    const worker = page.getByRole('region', { name: 'Workers' }).locator(`[data-id="${workers[0].workerId}"]`);
    await worker.getByText(workers[0].node, { exact: true }).waitFor();
    await worker.getByText(/^in \d+ s$/).waitFor();
    await page.locator('.node').getByRole('link', { name: 'runs on a node' }).waitFor();
    await page.getByRole('list', { name: 'Running calls' }).getByText('is being called').first().waitFor();
    await page.getByRole('region', { name: 'Calls that limits hold back' }).getByRole('link', { name: 'is held back' }).waitFor();
    const states = page.getByRole('list', { name: 'States of the toolsets' });
    await states.getByRole('listitem').filter({ hasText: 'broken' }).locator('.text-bad').waitFor();
    await checkLayout(page, options === PHONE ? violations : violationsInBothColours);
    await close(page);
  }
});

test('the page of usage shows tokens and cost of models, and the calls of tools', async () => {
  const { executionId } = await server.execute([{ name: 'flow.fail', parameters: { message: 'no' } }], 'counts');
  await server.reaches(executionId, 'FAILED');
  for (const options of [{}, PHONE]) {
    const page = await open(server, '/', options);
    // No model is configured, so the test adds its figures to those of the server.
    const model = ['faber_model_requests_total{model="m\\"1",outcome="answered"} 3', 'faber_model_tokens_total{model="m\\"1",type="input"} 1200', 'faber_model_cost_total{model="m\\"1"} 0.25'];
    await page.route('**/metrics', async (route) => {
      const answer = await route.fetch();
      return route.fulfill({ body: `${await answer.text()}\n${model.join('\n')}\n` });
    });
    await visit(page, server, '/usage');
    const row = page.getByRole('row', { name: /m"1/ });
    for (const text of ['3', '1,200', '0.2500']) await row.getByText(text, { exact: true }).waitFor();
    await page.getByRole('row', { name: /flow\.fail/ }).locator('.text-bad').getByText('1', { exact: true }).waitFor();
    await checkLayout(page, options === PHONE ? violations : violationsInBothColours);
    await close(page);
  }
});
