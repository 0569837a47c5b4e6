// Lists of requests and executions: their rows, searches and filters, and the return to a list.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, visit, withBrowser } from './harness.mjs';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

/** Sends a query for which the planner finds no plan. Returns the id of the request. */
async function unplanned(query) {
  const mutation = 'mutation($query: String!) { createPlanWithRequestId(query: $query) { planId } }';
  const response = await fetch(`${server.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: mutation, variables: { query } }),
  });
  const { errors } = await response.json();
  assert.equal(errors[0].extensions.code, 'NO_PLAN_FOUND', JSON.stringify(errors));
  return errors[0].extensions.requestId;
}

test('a request whose planning failed shows the error, matches the filter for failures, and offers a draft', async () => {
  const query = 'Create author Alice with email alice@web.test, then fry the author in butter';
  const id = await unplanned(query);
  await server.plan([{ name: 'flow.noop' }], 'never executed');
  const page = await open(server, '/requests?state=FAILED');
  const row = page.locator(`[data-id="${id}"]`);
  await row.locator('.row-meter', { hasText: 'planning failed' }).waitFor();
  assert.equal(await row.getAttribute('data-state'), 'FAILED');
  const { request } = await server.ask('query($id: ID!) { request(requestId: $id) { planningError { message } } }', { id });
  const cause = request.planningError.message.trim().split('\n').at(-1).trim();
  await row.locator('.row-reason', { hasText: cause.replaceAll('`', '').slice(0, 40) }).waitFor();
  assert.equal(await page.locator('.list-row').count(), 1);
  await page.getByLabel('State', { exact: true }).selectOption('COMPLETED');
  await page.getByRole('heading', { name: 'No matches' }).waitFor();
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.locator('.list-row', { hasText: 'never executed' }).getByText('not executed').first().waitFor();
  await row.getByRole('link').click();
  const card = page.locator('.failures .fault');
  await card.locator('code', { hasText: 'NO_PLAN_FOUND' }).first().waitFor();
  assert.deepEqual(await violations(page), []);
  await card.getByRole('link', { name: 'Start a draft' }).click();
  const text = page.getByLabel('The plan as JSON');
  await text.waitFor();
  const draft = JSON.parse(await text.inputValue());
  assert.deepEqual([draft.requestId, draft.query], [id, query]);
  // The draft contains no values, because a person must choose them. A part of the query without a tool gets a placeholder.
  assert.deepEqual(draft.tools.map(({ name, parameters }) => [name, parameters]), [
    ['blog.createAuthor', {}],
    ['TODO: fry the author in butter', {}],
  ]);
  await page.getByLabel('What the draft does not cover').getByText('fry the author in butter').waitFor();
  const diagnostics = page.getByLabel('Diagnostics');
  for (const code of ['plan.missing_parameter', 'plan.unknown_tool']) await diagnostics.getByText(code).first().waitFor();
  assert.equal(await page.getByText('Plan is valid.').count(), 0);
  assert.ok(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled());
  assert.deepEqual(await violations(page), []);
  await text.fill(JSON.stringify({ ...draft, tools: [{ name: 'flow.noop' }] }));
  await page.getByText('Plan is valid.').waitFor();
  await page.getByRole('button', { name: 'Save version' }).click();
  await page.waitForURL(/\/plans\/plan_[^?]*$/);
  await page.getByRole('link', { name: id }).click();
  await page.getByRole('tab', { name: 'Versions (1)' }).waitFor();
  assert.equal(await page.locator('.failures').count(), 0);
  await page.goto(`${server.url}/requests?state=FAILED`);
  await page.getByRole('heading', { name: 'No matches' }).waitFor();
  await close(page);
});

test('if the planner finds no plan for a query, the page offers a draft immediately', async () => {
  const page = await open(server, '/new');
  await page.getByLabel('What should be done?').fill('fry an egg in butter');
  await page.getByRole('button', { name: 'Create plan' }).click();
  await page.locator('.refused').getByRole('link', { name: 'Start a draft' }).click();
  await page.waitForURL(/\/new\?request=req_/);
  await page.getByLabel('What the draft does not cover').getByText('fry an egg in butter').waitFor();
  await page.getByLabel('Diagnostics').getByText('plan.unknown_tool').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled());
  await close(page);
});

test('the Back button restores the rows, the filter and the scroll position of a list', async () => {
  for (let n = 0; n < 130; n += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, at) => server.plan([{ name: 'flow.noop' }], `plan number ${n + at}`)));
  }
  for (const [path, options] of [['/requests?search=number', {}], ['/requests?search=number', { viewport: { width: 390, height: 844 }, hasTouch: true }]]) {
    const page = await open(server, path, options);
    await page.getByRole('button', { name: 'Show older ones' }).click();
    await page.getByText('130 shown').waitFor();
    const list = page.getByRole('list', { name: 'Requests' });
    const top = () => list.evaluate((list) => list.scrollTop);
    await list.evaluate((list) => list.scrollTo(0, 3_000));
    await until(async () => (await top()) === 3_000 && (await list.locator('.list-row').count()) > 0, 'the list is scrolled');
    const row = list.locator('.list-row').nth(12);
    const id = await row.getAttribute('data-id');
    await row.getByRole('link').click();
    await page.waitForURL(`**/requests/${id}`);
    await page.goBack();
    await page.getByText('130 shown').waitFor();
    await until(async () => (await top()) === 3_000, 'the list has its old scroll position');
    assert.equal(await page.getByLabel('Search requests').inputValue(), 'number');
    await page.locator(`[data-id="${id}"]`).waitFor();
    // A link to the list, unlike the Back button, leads to its first row.
    await page.locator(`[data-id="${id}"]`).getByRole('link').click();
    await page.getByLabel('Path to this page').getByRole('link', { name: 'Requests' }).click();
    await page.getByText('50 shown').waitFor();
    assert.equal(await top(), 0);
    await close(page);
  }
});

test('an id in a search box opens the page of its object', async () => {
  const { executionId, requestId } = await server.execute([{ name: 'flow.noop' }], 'to be found by its id');
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { planId } }', { id: executionId });
  const page = await open(server, '/');
  for (const [place, label] of [['/requests', 'Search requests'], ['/executions', 'Search errors']]) {
    for (const [id, path] of [[requestId, 'requests'], [execution.planId, 'plans'], [executionId, 'executions']]) {
      await visit(page, server, place);
      await page.getByLabel(label, { exact: true }).fill(`  ${id} `);
      await page.waitForURL(`**/${path}/${id}`);
      await page.getByText('to be found by its id').first().waitFor();
    }
  }
  await close(page);
});

test('the list and the page of a scheduled execution show its start time', async () => {
  const startAt = new Date(Date.now() + 86_400_000 - 60_000).toISOString();
  const { executionId } = await server.execute([{ name: 'flow.noop' }], 'tomorrow', { startAt });
  const page = await open(server, `/executions/${executionId}`);
  await page.locator('.head .facts').getByText(/^Starts .*\(in 23 h\)$/).waitFor();
  await page.getByLabel('What it waits for').getByText(/starts in 2[34] h/).waitFor();
  await page.goto(`${server.url}/executions`);
  const row = page.locator(`[data-id="${executionId}"]`);
  await row.locator('.row-id', { hasText: /Starts .*\(in 23 h\)/ }).waitFor();
  assert.equal(await row.locator('.row-time').innerText(), '');
  await close(page);
});

test('rows show why an execution waits or failed, and a mark and a filter show the rows that need a person', async (context) => {
  const own = await Server.start();
  context.after(() => own.stop());
  const runs = {};
  for (const [name, tools, state] of [
    ['approve', [{ id: 'refund', name: 'flow.noop', requiresApproval: true }], 'WAITING'],
    ['signal', [{ id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }], 'WAITING'],
    ['failed', [{ id: 'export', name: 'flow.fail', parameters: { message: 'unknown VAT code' } }], 'FAILED'],
    ['retrying', [{ id: 'stock', name: 'flow.fail', parameters: { message: 'busy', retryable: true }, retry: { maxAttempts: 9, backoffMs: 3_600_000, jitter: false } }], 'WAITING'],
    ['done', [{ id: 'look', name: 'flow.noop' }], 'COMPLETED'],
  ]) {
    runs[name] = await own.execute(tools, name);
    await own.reaches(runs[name].executionId, state);
  }
  for (const options of [{}, { viewport: { width: 390, height: 844 }, hasTouch: true }]) {
    const page = await open(own, '/', options);
    for (const [place, id] of [['/requests', 'requestId'], ['/executions', 'executionId']]) {
      await visit(page, own, place);
      const row = (name) => page.locator(`[data-id="${runs[name][id]}"]`);
      for (const [name, words] of [['approve', 'refund'], ['signal', 'paper'], ['failed', 'unknown VAT code'], ['retrying', 'stock']]) {
        await row(name).locator('.row-reason', { hasText: words }).waitFor();
      }
      assert.equal(await row('done').locator('.row-reason').count(), 0);
      await page.locator('[data-needs-person]').nth(1).waitFor();
      const filter = page.getByRole('button', { name: /^Needs a person/ });
      await filter.getByText('2', { exact: true }).waitFor();
      await filter.click();
      await until(async () => (await page.locator('.list-row').count()) === 2, 'two rows are shown');
      for (const name of ['approve', 'signal']) await row(name).waitFor();
      assert.deepEqual(await violations(page), []);
      await page.reload();
      await until(async () => (await page.locator('.list-row').count()) === 2, 'two rows are shown after a reload, because the URL contains the filter');
    }
    await close(page);
  }
});
