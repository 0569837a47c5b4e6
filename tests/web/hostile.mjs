// What comes from elsewhere is text, whatever it says.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, until, withBrowser } from './harness.mjs';

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

test('markup in queries, parameters, outputs, errors and keys stays text', async () => {
  const tools = [
    { id: 'echo', name: 'flow.echo', parameters: { [EVIL]: EVIL, __proto__x: { constructor: EVIL } } },
    { id: 'fail', name: 'flow.fail', parameters: { message: EVIL, code: 'x.<b>y' }, onError: 'continue' },
  ];
  const { executionId, requestId } = await server.execute(tools, EVIL);
  await server.reaches(executionId, 'COMPLETED');
  for (const view of ['graph', 'timeline', 'steps', 'events', 'results']) {
    for (const step of ['', 'echo', 'fail']) {
      const page = await open(server, `/executions/${executionId}?view=${view}&step=${step}`);
      await says(page, 'Completed');
      if (step) await page.locator('.inspector').getByText('<img src=x').first().waitFor();
      await isHarmless(page);
      await close(page);
    }
  }
  for (const path of ['/', `/requests/${requestId}`, `/?search=${encodeURIComponent(EVIL)}`, `/tools/${encodeURIComponent(EVIL)}`, `/executions/${encodeURIComponent(EVIL)}`]) {
    const page = await open(server, path);
    await page.locator('main h1, main h2').first().waitFor();
    await isHarmless(page);
    await close(page);
  }
});

test('a huge output is cut, and shown when somebody asks', async () => {
  const huge = 'spam '.repeat(100_000);
  const { executionId } = await server.execute([{ id: 'huge', name: 'flow.echo', parameters: { huge, many: Array(5_000).fill({ a: 1 }) } }], 'huge');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=steps&step=huge`);
  await shows(page, 'huge', 'SUCCEEDED');
  const more = page.getByRole('button', { name: 'all 500,000 characters' }).first();
  await more.waitFor();
  const size = () => page.evaluate(() => document.body.innerText.length);
  assert.ok((await size()) < 50_000, 'little of it is there at first');
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) < 3_000, 'nor many elements');
  await more.click();
  await until(async () => (await size()) > 500_000, 'all of it is there');
  await close(page);
});

test('the page may do little, and says so to the browser', async () => {
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
