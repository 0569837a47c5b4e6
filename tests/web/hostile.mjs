// Texts from tools, plans and URLs are shown as text and never run as HTML or scripts.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, until, visit, withBrowser } from './harness.mjs';

const EVIL = '<img src=x onerror="window.__ran = 1"><script>window.__ran = 2</script><svg onload="window.__ran = 3"><a href="javascript:window.__ran = 4">x</a>';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

async function isHarmless(page) {
  assert.equal(await page.evaluate(() => window.__ran), undefined);
  assert.equal(await page.locator('main img, main script, main a[href^="javascript"]').count(), 0);
}

test('HTML in queries, parameters, outputs, errors and keys is shown as text', async () => {
  const tools = [
    { id: 'echo', name: 'flow.echo', parameters: { [EVIL]: EVIL, __proto__x: { constructor: EVIL } } },
    { id: 'fail', name: 'flow.fail', parameters: { message: EVIL, code: 'x.<b>y' }, onError: 'continue' },
  ];
  const { executionId, requestId } = await server.execute(tools, EVIL);
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, '/');
  for (const view of ['graph', 'timeline', 'steps', 'events', 'results']) {
    for (const step of ['', 'echo', 'fail']) {
      await visit(page, server, `/executions/${executionId}?view=${view}&step=${step}`);
      await says(page, 'Completed');
      if (step) await page.locator('.inspector').getByText('<img src=x').first().waitFor();
      await isHarmless(page);
    }
  }
  for (const path of ['/', `/requests/${requestId}`, `/?search=${encodeURIComponent(EVIL)}`, `/tools/${encodeURIComponent(EVIL)}`, `/executions/${encodeURIComponent(EVIL)}`]) {
    await visit(page, server, path);
    await page.locator('main h1, main h2').first().waitFor();
    await isHarmless(page);
  }
  await close(page);
});

test('a huge output is shortened, and a button shows the whole output', async () => {
  const huge = 'spam '.repeat(100_000);
  const { executionId } = await server.execute([{ id: 'huge', name: 'flow.echo', parameters: { huge, many: Array(5_000).fill({ a: 1 }) } }], 'huge');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=steps&step=huge`);
  await shows(page, 'huge', 'SUCCEEDED');
  const more = page.getByRole('button', { name: 'all 500,000 characters' }).first();
  await more.waitFor();
  const size = () => page.evaluate(() => document.body.innerText.length);
  assert.ok((await size()) < 50_000, 'only a small part of the output is shown at first');
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) < 3_000, 'the page has few elements');
  await more.click();
  await until(async () => (await size()) > 500_000, 'the whole output is shown');
  await close(page);
});

test('invisible characters, and characters that reverse the direction of text, are shown by name', async () => {
  const tools = [
    { id: 'echo', name: 'flow.echo', parameters: { file: 'invoice \u202egpj.exe', nothing: 'a\u200bb', terminal: '\u001b[2J', hebrew: 'שלום', [`key\u202e`]: 1 } },
    { id: 'fail', name: 'flow.fail', parameters: { message: '\u001b[31mno \u202eko' }, onError: 'continue' },
  ];
  const { executionId, requestId } = await server.execute(tools, 'say \u202eno');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, '/');
  for (const path of [`/executions/${executionId}?view=results&step=echo`, `/executions/${executionId}?view=events&step=fail`, `/executions/${executionId}?view=steps`, `/requests/${requestId}`, '/requests']) {
    await visit(page, server, path);
    await page.getByText('U+202E').first().waitFor();
    const text = await page.evaluate(() => document.body.innerText + document.title);
    assert.ok(!/[\u202e\u200b\u001b]/.test(text), path);
    if (path.includes('results')) {
      for (const it of ['U+200B', 'ESC', 'שלום']) assert.ok(text.includes(it), it);
    }
  }
  await close(page);
});

test('texts and numbers look different and are copied as JSON, even if the browser has no clipboard API', async () => {
  const { executionId } = await server.execute([{ id: 'echo', name: 'flow.echo', parameters: { text: '1', number: 1 } }], 'quoted');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, '/');
  await page.addInitScript(() => {
    Object.defineProperty(navigator, 'clipboard', { value: undefined });
    document.addEventListener('copy', () => (window.__copied = String(document.activeElement.value)));
  });
  await page.goto(`${server.url}/executions/${executionId}?view=steps&step=echo`);
  const output = page.getByRole('group', { name: 'output of echo' });
  // The style sheet adds the colon after a name, so the text does not contain it.
  assert.match((await output.innerText()).replaceAll(/\s+/g, ' '), /text"1" number1/);
  await output.getByRole('button', { name: /^Copy/ }).click();
  await page.waitForFunction(() => window.__copied !== undefined);
  assert.deepEqual(JSON.parse(await page.evaluate(() => window.__copied)), { text: '1', number: 1 });
  await close(page);
});

test('the page shows the answer of a proxy that is not JSON, and runs none of its scripts', async () => {
  const page = await open(server, '/tools');
  await page.locator('.tool-row').first().waitFor();
  await page.route('**/graphql', (route) => route.fulfill({ status: 502, contentType: 'text/html', body: '<html><h1>Bad gateway</h1><script>window.__ran = 5</script></html>' }));
  await page.goto(`${server.url}/requests/req_1_aaaaaaaaa`);
  await page.getByText('the answer is not JSON: 502').waitFor();
  await page.getByText('Bad gateway').waitFor();
  await isHarmless(page);
  await close(page);
});

test('the content security policy of the page blocks inline scripts', async () => {
  const response = await fetch(`${server.url}/`);
  const policy = response.headers.get('content-security-policy');
  for (const part of ["default-src 'self'", "script-src 'self'", "style-src 'self'", "object-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"]) {
    assert.ok(policy.includes(part), part);
  }
  assert.ok(!policy.includes('unsafe'), policy);
  const page = await open(server, '/');
  const ran = await page.evaluate(() => {
    const script = document.createElement('script');
    try {
      script.text = 'window.__ran = 1';
      document.body.append(script);
    } catch (error) {
      return String(error);
    }
    return String(window.__ran);
  });
  assert.match(ran, /undefined|TrustedScript/);
  page.mistakes.length = 0;
  await close(page);
});
