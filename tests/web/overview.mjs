// The overview: tiles, executions over time, failures by cause with their retry, and the page of a new installation.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, until, violations, violationsInBothColours, withBrowser } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };
const TRACE = `Traceback (most recent call last):\n${'  File "export.py", line 3, in export\n    raise ValueError\n'.repeat(60)}ValueError: unknown VAT code 'QX'`;

let server;
withBrowser();
before(async () => {
  server = await Server.start();
  const fail = (message, more = {}) => [{ id: 'export', name: 'flow.fail', parameters: { message }, ...more }];
  for (const [tools, state, options] of [
    [[{ id: 'refund', name: 'flow.noop', requiresApproval: true }], 'WAITING'],
    [[{ id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }], 'WAITING'],
    [fail('busy', { parameters: { message: 'busy', retryable: true }, retry: { maxAttempts: 9, backoffMs: 3_600_000, jitter: false } }), 'WAITING'],
    [fail(TRACE), 'FAILED'],
    [fail(TRACE), 'FAILED'],
    [[{ id: 'look', name: 'flow.noop' }], 'COMPLETED'],
    [[{ id: 'later', name: 'flow.noop' }], 'PENDING', { startAt: new Date(Date.now() + 7_200_000).toISOString() }],
  ]) {
    const { executionId } = await server.execute(tools, 'overviews', options);
    await server.reaches(executionId, state);
  }
});
after(() => server?.stop());

test('the tiles show numbers, and lead to the executions that they count', async () => {
  for (const options of [{}, PHONE]) {
    const page = await open(server, '/', options);
    const tile = (name) => page.locator('.tile', { hasText: name });
    for (const [name, count] of [['Needs you', 2], ['Failed in 24 h', 2], ['Running and retrying', 1], ['Scheduled', 1]]) {
      await tile(name).locator('.tile-count').getByText(String(count), { exact: true }).waitFor();
    }
    await tile('Scheduled').getByText(/next in (2 h|1 h)/).waitFor();
    await page.getByText('failure rate 67 %').waitFor();
    await page.locator('.chart-links a').first().waitFor();
    assert.deepEqual(await (options === PHONE ? violations : violationsInBothColours)(page), []);
    const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
    await tile('Failed in 24 h').click();
    await page.waitForURL(/\/executions\?.*state=FAILED/);
    await until(async () => (await page.locator('.list-row').count()) === 2, 'the failed executions are listed');
    await page.goBack();
    await tile('Running and retrying').click();
    await until(async () => (await page.locator('.list-row').count()) === 1, 'the execution that retries is listed');
    await page.goBack();
    await page.locator('.chart-links a').last().click();
    await page.waitForURL(/\/executions\?from=/);
    await page.locator('.list-row').first().waitFor();
    await close(page);
  }
});

test('failures are grouped by tool and code, show their cause, and are all retried with two clicks', async () => {
  const page = await open(server, '/');
  const cause = page.locator('.cause', { hasText: 'flow.fail' });
  await cause.getByText("unknown VAT code 'QX'").waitFor();
  await cause.locator('.cause-count').getByText('2', { exact: true }).waitFor();
  const list = (await server.ask('{ executions(filter: { state: [FAILED] }) { totalCount } }')).executions.totalCount;
  await cause.getByRole('button', { name: 'Retry all' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading', { name: 'Retry 2 executions?' }).waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByRole('dialog').getByRole('heading', { name: '2 executions were retried.' }).waitFor();
  await page.getByRole('button', { name: 'Done' }).click();
  await until(async () => (await server.ask('{ executions(filter: { state: [FAILED] }) { totalCount } }')).executions.totalCount === list + 2, 'both are retried');
  await page.getByRole('link', { name: 'newest example' }).click();
  await says(page, 'Failed');
  // The retries failed, too. A second press retries only them, and not the first executions again.
  await page.goto(server.url);
  await page.locator('.cause', { hasText: 'flow.fail' }).getByRole('button', { name: 'Retry all' }).click();
  const again = page.getByRole('dialog');
  await again.getByRole('heading', { name: 'Retry 2 executions?' }).waitFor();
  await again.getByText('2 executions were retried before, and are left out.').waitFor();
  await again.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByRole('dialog').getByRole('heading', { name: '2 executions were retried.' }).waitFor();
  const { executions } = await server.ask('{ executions(filter: { state: [FAILED] }) { nodes { retries { executionId } } } }');
  assert.deepEqual(executions.nodes.map((run) => run.retries.length).filter((count) => count > 1), [], 'no execution is retried twice');
  await close(page);
});

test('the dialog of a bulk retry lists calls with an unknown outcome, and leaves their executions out', async (context) => {
  const pay = { name: 'pay', description: 'Pays', parameters: { type: 'object' }, effect: 'once', run: { command: ['sleep', '60'] } };
  const own = await Server.start({ config: { toolsets: [{ name: 'shop', source: { tools: [pay] } }] } });
  context.after(() => own.stop());
  const { executionId } = await own.execute([{ id: 'pay', name: 'shop.pay', timeoutMs: 200 }], 'pay');
  await own.reaches(executionId, 'FAILED');
  const page = await open(own, '/');
  await page.locator('.cause', { hasText: 'shop.pay' }).getByRole('button', { name: 'Retry all' }).click();
  const dialog = page.getByRole('dialog');
  const unknown = dialog.getByRole('region', { name: 'Calls with an unknown outcome' });
  await unknown.getByRole('link', { name: executionId }).waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await dialog.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByRole('dialog').getByRole('heading', { name: '0 executions were retried.' }).waitFor();
  await close(page);
});

test('old addresses of the list lead to /requests', async () => {
  for (const query of ['state=FAILED', 'search=overviews&since=1h', 'needs=person']) {
    const page = await open(server, `/?${query}`);
    await page.waitForURL(`${server.url}/requests?${query}`);
    await page.getByRole('heading', { name: 'Requests', exact: true }).waitFor();
    await page.locator('.list-row').first().waitFor();
    await close(page);
  }
});

test('a new installation offers examples that run at once', async (context) => {
  const own = await Server.start();
  context.after(() => own.stop());
  for (const [title, word] of [['Plan and run a sentence', 'Completed'], ['Retry a call that fails', 'Completed'], ['Ask a person first', 'Waiting']]) {
    const page = await open(own, '/');
    if (title === 'Plan and run a sentence') {
      assert.deepEqual(await violationsInBothColours(page), []);
    } else {
      // After the first request, the page is an overview. The examples are shown again if the server has no requests.
      await page.route('**/graphql', async (route) => {
        if (!route.request().postData()?.includes('query Overview(')) return route.fallback();
        const answer = await (await route.fetch()).json();
        answer.data.requests.totalCount = 0;
        return route.fulfill({ json: answer });
      });
      await page.reload();
    }
    const example = page.locator('.example-run', { hasText: title });
    await example.getByRole('button', { name: 'Run it' }).click();
    await page.waitForURL(/\/executions\/exec_/);
    await says(page, word);
    await close(page);
  }
});
