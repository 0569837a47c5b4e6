// The viewer of values: indices, previews, search, templates, tables, images and downloads.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const REPORT = {
  rows: Array.from({ length: 120 }, (_, n) => ({ id: `ord-${n}`, amount: n * 10, customer: { name: `c${n}` } })),
  picture: { type: 'image', mimeType: 'image/png', data: DOT },
  'odd name': 1.0,
};

let server;
let id;
withBrowser();
before(async () => {
  server = await Server.start();
  id = (await server.execute([{ id: 'report', name: 'flow.echo', parameters: REPORT }], 'a report')).executionId;
  await server.reaches(id, 'COMPLETED');
});
after(() => server?.stop());

/** Collects copied texts, because a page without HTTPS has no clipboard to read. */
async function listenToCopies(page) {
  await page.evaluate(() => {
    globalThis.copied = [];
    document.execCommand = () => globalThis.copied.push(document.activeElement.value) > 0;
    Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });
  });
}

test('values have indices, previews, a search, templates, a table, an image and a download', async () => {
  const page = await open(server, `/executions/${id}?step=report`);
  const output = page.getByRole('group', { name: 'output of report' });
  await output.waitFor();
  await listenToCopies(page);
  // The list is the first inner value. Its entries are closed, and show their first fields.
  await output.getByText('id: "ord-0", amount: 0, 1 more').waitFor();
  await output.locator('.json-key.is-index', { hasText: /^1$/ }).first().click();
  await until(async () => (await page.evaluate(() => globalThis.copied.at(-1))) === '{{report.rows[1]}}', 'the template of an entry is copied');
  await output.getByRole('button', { name: 'as a table' }).click();
  await output.getByRole('row', { name: /ord-7 / }).getByText('70', { exact: true }).waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await output.getByRole('button', { name: 'Show the image' }).click();
  const image = output.getByRole('img');
  await until(() => image.evaluate((element) => element.naturalWidth === 1), 'the image is drawn');
  await output.getByRole('button', { name: 'Search in output of report' }).click();
  await output.getByLabel('Words in output of report').fill('c117');
  await output.getByText('1 match', { exact: true }).waitFor();
  await output.getByRole('button', { name: 'Copy {{report.rows[117].customer.name}}' }).click();
  assert.equal(await page.evaluate(() => globalThis.copied.at(-1)), '{{report.rows[117].customer.name}}');
  await output.getByLabel('Words in output of report').fill('odd');
  await output.getByRole('button', { name: 'Copy {{report["odd name"]}}' }).waitFor();
  assert.deepEqual(await violations(page), []);
  const waits = page.waitForEvent('download');
  await output.getByRole('button', { name: 'Download output of report' }).click();
  const stream = await (await waits).createReadStream();
  let text = '';
  for await (const part of stream) text += part;
  assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(REPORT)));
  await close(page);
});

test('the results of an execution have templates that begin with the step', async () => {
  const page = await open(server, '/');
  await visit(page, server, `/executions/${id}?view=results`);
  const outputs = page.getByRole('group', { name: 'outputs', exact: true });
  await outputs.getByRole('button', { name: 'Search in outputs' }).click();
  await outputs.getByLabel('Words in outputs').fill('ord-5');
  await outputs.getByRole('button', { name: 'Copy {{report.rows[5].id}}' }).waitFor();
  await close(page);
});

test('two attempts of a step are compared by parameters and result', async () => {
  const step = { id: 'load', name: 'flow.fail', parameters: { message: `busy\n${'x'.repeat(4_000)}`, retryable: true, times: 2 }, retry: { maxAttempts: 3, backoffMs: 1 } };
  const { executionId } = await server.execute([step], 'attempts');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?step=load`);
  await page.getByRole('button', { name: 'Compare attempts' }).click();
  const differences = page.locator('.attempt-comparison').getByLabel('Differences');
  await differences.getByText('+   "output":').waitFor();
  await differences.getByText('−     "code": "tool.failed"').waitFor();
  // The page knows only shortened values, but compares whole ones.
  await differences.getByText('x'.repeat(4_000)).first().waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await page.getByLabel('Second attempt').selectOption({ label: 'attempt 1' });
  await page.getByText('Both have the same parameters and the same result.').waitFor();
  await close(page);
});
