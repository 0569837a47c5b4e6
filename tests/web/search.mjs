// The search over everything, the filters of the list of executions, saved views, and actions on many executions.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, violationsInBothColours, withBrowser } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

async function run(tools, query, state, options = {}) {
  const made = await server.execute(tools, query, options);
  await server.reaches(made.executionId, state);
  return made;
}

const EXPORT = [{ id: 'export', name: 'flow.fail', parameters: { message: 'unknown VAT code' } }];

test('inline plans are no rows, and waiting is shown apart from the time before', async () => {
  const inner = { query: 'inner plan of a step', tools: [{ id: 'look', name: 'flow.noop' }] };
  const outer = [{ id: 'part', inlinePlan: inner }, { id: 'ask', name: 'flow.noop', dependsOn: 'part', requiresApproval: true }];
  const { executionId, requestId } = await server.execute(outer, 'outer plan with a part');
  await server.reaches(executionId, 'WAITING');
  const { requests } = await server.ask('{ requests(filter: { search: "inner plan of a step" }) { totalCount } }');
  assert.equal(requests.totalCount, 1, 'the server stores a request for the inline plan');
  const page = await open(server, '/requests?search=plan');
  await page.locator(`.list-row[data-id="${requestId}"]`).waitFor();
  assert.equal(await page.locator('.list-row', { hasText: 'inner plan of a step' }).count(), 0);
  await page.locator(`.list-row[data-id="${requestId}"] .row-spent`).getByText(/^waits /).waitFor();
  await page.goto(`${server.url}/requests?search=inner`);
  await page.getByRole('heading', { name: 'No matches' }).waitFor();
  // An inline plan that somebody executes by itself is a row.
  const own = await server.ask('{ requests(filter: { search: "inner plan of a step" }) { nodes { requestId plans { planId } } } }');
  const [alone] = own.requests.nodes;
  await server.ask('mutation($id: ID!) { executePlan(planId: $id) { executionId } }', { id: alone.plans[0].planId });
  await page.locator(`.list-row[data-id="${alone.requestId}"]`).waitFor();
  await close(page);
});

test('the search finds ids, words of queries and errors, tools and labels', async () => {
  const failed = await run(EXPORT, 'invoices of November', 'FAILED', { labels: { team: 'shop' } });
  const page = await open(server, '/');
  const palette = page.getByRole('dialog', { name: 'Search' });
  const box = palette.getByLabel('Search everything');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.keyboard.press('/');
  await box.fill(failed.executionId);
  await page.waitForURL(`**/executions/${failed.executionId}`);
  await page.keyboard.press('Control+k');
  for (const [words, title] of [
    ['November', 'Requests with these words'],
    ['VAT', 'Executions whose error has these words'],
    ['flow.fail', 'Executions that use this tool'],
    ['team=shop', 'Executions with this label'],
    ['team', 'Executions with this label'],
    ['createAuthor', 'Tools'],
    ['Approvals', 'Pages'],
  ]) {
    await box.fill(words);
    await palette.getByRole('heading', { name: title }).waitFor();
  }
  await box.fill('nothing-like-it');
  await palette.getByText('No matches for').waitFor();
  await box.fill('VAT');
  await palette.getByRole('link', { name: /invoices of November/ }).waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL(`**/executions/${failed.executionId}`);
  await palette.waitFor({ state: 'detached' });
  await close(page);
});

test('a slash in a text field opens no search', async () => {
  const page = await open(server, '/requests');
  await page.getByLabel('Search requests').fill('');
  await page.getByLabel('Search requests').press('/');
  assert.equal(await page.getByRole('dialog').count(), 0);
  assert.equal(await page.getByLabel('Search requests').inputValue(), '/');
  await close(page);
});

test('chips show the filter, the list shows the number of matches, and a view keeps the filter', async () => {
  await run([{ id: 'call', name: 'flow.sleep', parameters: { ms: 60_000 }, timeoutMs: 10 }], 'slow', 'FAILED', { labels: { team: 'stock' } });
  await run([{ id: 'look', name: 'flow.noop' }], 'fine', 'COMPLETED', { labels: { team: 'shop' } });
  const page = await open(server, '/executions');
  await page.getByRole('button', { name: 'More filters…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Failed', { exact: true }).check();
  await dialog.getByLabel('Cancelled', { exact: true }).check();
  await dialog.getByLabel('Error code').fill('tool.timeout');
  await dialog.getByLabel('Labels').fill('team=stock');
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole('button', { name: 'Apply' }).click();
  const chips = page.getByRole('list', { name: 'Filter' });
  for (const text of ['Failed or Cancelled', 'tool.timeout', 'team=stock']) await chips.getByText(text).waitFor();
  const all = (await server.ask('{ executions(filter: { parts: false }) { totalCount } }')).executions.totalCount;
  await page.locator('.list-foot').getByText(`1 of ${all}`).waitFor();
  await page.getByRole('button', { name: 'Save view…' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('slow stock');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByRole('navigation', { name: 'Saved views' }).getByRole('link', { name: 'slow stock' }).waitFor();
  assert.deepEqual(await violations(page), []);
  for (const name of ['Label', 'State', 'Error code']) await chips.getByRole('button', { name: `Remove the filter ${name}` }).click();
  await page.locator('.list-foot').getByText(`${all} in all`).waitFor();
  await page.getByRole('link', { name: 'slow stock' }).click();
  await page.locator('.list-foot').getByText(`1 of ${all}`).waitFor();
  await page.getByRole('button', { name: 'Remove the view slow stock' }).click();
  await page.getByRole('link', { name: 'slow stock' }).waitFor({ state: 'detached' });
  await close(page);
});

test('chosen rows, and all rows that match, are changed together', async () => {
  const runs = [];
  for (let n = 0; n < 3; n += 1) runs.push(await run([{ id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }], `bulk ${n}`, 'WAITING', { labels: { many: 'yes' } }));
  const states = async () => (await server.ask('{ executions(filter: { labels: { many: "yes" } }) { nodes { state } } }')).executions.nodes.map((node) => node.state).sort().join(' ');
  for (const options of [{}, PHONE]) {
    const page = await open(server, '/executions?label=many%3Dyes', options);
    const bar = page.getByRole('group', { name: 'Actions on the chosen executions' });
    const act = async (name, result) => {
      await bar.getByRole('button', { name, exact: true }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('heading', { name: new RegExp(`^${name} \\d+ executions?\\?$`) }).waitFor();
      await dialog.getByRole('button', { name, exact: true }).click();
      await page.getByRole('heading', { name: result }).waitFor();
      await page.getByRole('button', { name: 'Done' }).click();
    };
    await page.getByLabel(`Choose ${runs[0].executionId}`).check();
    await bar.getByText('1 chosen').waitFor();
    assert.deepEqual(await violations(page), []);
    const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
    await act('Pause', '1 execution was paused.');
    await until(async () => (await states()) === 'PAUSED WAITING WAITING', 'one is paused');
    await bar.getByRole('button', { name: 'Choose all 3 that match' }).click();
    await bar.getByText('All 3 that match').waitFor();
    await act('Resume', '1 execution was resumed.');
    await until(async () => (await states()) === 'WAITING WAITING WAITING', 'none is paused');
    if (options === PHONE) {
      await act('Cancel', '3 executions were cancelled.');
      await until(async () => (await states()) === 'CANCELLED CANCELLED CANCELLED', 'all are cancelled');
      await bar.getByRole('button', { name: 'Clear' }).click();
      await bar.waitFor({ state: 'detached' });
    }
    await close(page);
  }
});

test('a bulk retry asks first, and refuses a rate that is not a number', async () => {
  await server.ask('mutation($input: ToolInput!) { registerTool(input: $input) { name } }', {
    input: { name: 'charge', description: 'Charges a card', parameters: { type: 'object' }, effect: 'ONCE', run: { command: ['false'] } },
  });
  await run([{ id: 'pay', name: 'charge', parameters: {} }], 'bulk charge', 'FAILED', { labels: { pay: 'yes' } });
  const page = await open(server, '/executions?label=pay%3Dyes');
  await page.getByLabel('Choose all shown').check();
  await page.getByRole('group', { name: 'Actions on the chosen executions' }).getByRole('button', { name: 'Retry' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading', { name: 'Retry 1 execution?' }).waitFor();
  await dialog.getByLabel('Executions per second (optional)').fill('none');
  await dialog.getByRole('button', { name: 'Retry', exact: true }).click();
  await dialog.getByText('the rate is a number').waitFor();
  await close(page);
});

test('rows load while the user scrolls', async () => {
  const { planId } = await server.plan([{ name: 'flow.noop' }], 'one of many');
  const mutation = 'mutation($id: ID!) { executePlan(planId: $id, options: { labels: { rows: "many" } }) { executionId } }';
  for (let n = 0; n < 90; n += 10) await Promise.all(Array.from({ length: 10 }, () => server.ask(mutation, { id: planId })));
  const page = await open(server, '/executions?label=rows%3Dmany');
  await page.locator('.list-foot').getByText('50 shown').waitFor();
  const list = page.getByRole('list', { name: 'Executions' });
  await list.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await page.locator('.list-foot').getByText('90 shown').waitFor();
  await close(page);
});
