// Failure cards: they show the cause first, fit into the window, and offer actions that help.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, until, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

const CAUSE = "ValueError: unknown VAT code 'QX'";
const FRAME = (n) => `  File "/srv/export/${'very_long_module_name/'.repeat(4)}module_${n}.py", line ${n}, in export_invoice_${n}\n    return export_all_lines_of_an_invoice(invoice, line=${n}, strict=True)`;
/** The error message of a failed Python program, about 4 kB long. */
const TRACE = `\`export\` exited with status 1: Traceback (most recent call last):\n${Array.from({ length: 18 }, (_, n) => FRAME(n)).join('\n')}\n${CAUSE}\n\n`;
const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

const FAILS = [
  { id: 'list_the_orders', name: 'flow.echo', parameters: { n: 1 } },
  { id: 'export', name: 'flow.fail', parameters: { message: TRACE }, dependsOn: 'list_the_orders' },
];

/** Returns the parts of a failure card that are left or right of the window, and the buttons above or below it. */
function outside(card) {
  return card.evaluate((card) => {
    const wrong = [];
    for (const part of [card, ...card.querySelectorAll('*')]) {
      const { left, right, top, bottom, width } = part.getBoundingClientRect();
      const name = `${part.tagName} ${part.textContent.slice(0, 30)}`;
      if (width > 0 && (left < -0.5 || right > innerWidth + 0.5)) wrong.push(`${name}: ${left} to ${right}`);
      if (part.matches('button.primary, .buttons > *') && (top < 0 || bottom > innerHeight)) wrong.push(`${name}: ${top} to ${bottom}`);
    }
    return wrong;
  });
}

/** Waits until the trace is scrolled to its end. */
async function showsTheEnd(card) {
  const trace = card.getByLabel('Whole message');
  await trace.waitFor();
  await until(() => trace.evaluate((box) => box.scrollHeight > box.clientHeight && box.scrollTop + box.clientHeight >= box.scrollHeight - 1), 'the trace is scrolled to its end');
}

for (const colorScheme of ['light', 'dark']) {
  test(`the failure card of a long trace fits a phone and shows the cause and the actions, ${colorScheme}`, async () => {
    assert.ok(TRACE.length > 4_000, String(TRACE.length));
    const { executionId } = await server.execute(FAILS, `export the invoices, ${colorScheme}`);
    await server.reaches(executionId, 'FAILED');
    const page = await open(server, '/', { ...PHONE, colorScheme });
    for (const view of ['graph', 'timeline', 'steps', 'events', 'results']) {
      await visit(page, server, `/executions/${executionId}?view=${view}`);
      await says(page, 'Failed');
      const card = page.getByLabel('What failed').locator('.fault');
      await card.waitFor();
      assert.ok((await card.locator('.fault-message').innerText()).startsWith(`export failed: ${CAUSE}`));
      await showsTheEnd(card);
      for (const name of ['Retry', 'Show step']) await card.getByRole('button', { name }).waitFor();
      await card.getByRole('link', { name: 'Edit plan' }).waitFor();
      await card.getByText('The tool reported').waitFor();
      assert.deepEqual(await outside(card), [], view);
      if (view === 'graph' || view === 'results') assert.deepEqual(await violations(page), [], view);
    }
    await visit(page, server, `/executions/${executionId}?view=steps`);
    await shows(page, 'export', 'FAILED');
    await page.getByLabel('What failed').getByRole('button', { name: 'Show step' }).click();
    const card = page.locator('.inspector .fault');
    await card.waitFor();
    assert.ok((await card.locator('.fault-message').innerText()).startsWith(`export failed: ${CAUSE}`));
    await showsTheEnd(card);
    assert.deepEqual(await outside(card), []);
    await card.getByRole('button', { name: /Show all \d+ lines/ }).click();
    await until(() => card.getByLabel('Whole message').evaluate((box) => box.scrollHeight <= box.clientHeight + 1), 'the whole trace is shown');
    await close(page);
  });
}

test('after a compensation, every view lists the steps that were undone and the steps that were not', async () => {
  const tools = [
    { id: 'reserve', name: 'flow.echo', parameters: { n: 1 }, compensate: { name: 'flow.noop' } },
    { id: 'author', name: 'blog.createAuthor', parameters: { name: 'Ada', email: 'ada@undo.test' } },
    { id: 'pay', name: 'flow.fail', parameters: { message: 'card refused' }, dependsOn: ['reserve', 'author'] },
  ];
  const { executionId } = await server.execute(tools, 'undo what was reserved');
  await server.reaches(executionId, 'FAILED');
  const page = await open(server, `/executions/${executionId}`, PHONE);
  const notes = page.getByLabel('Warnings');
  await notes.getByText(/undone by\s+flow\.noop/).waitFor();
  await notes.getByText(/is not undone, because/).waitFor();
  // The cause contains the whole message, so the card does not show the message a second time.
  const card = page.getByLabel('What failed').locator('.fault');
  assert.ok((await card.innerText()).includes('card refused'));
  assert.equal(await card.getByLabel('Whole message').count(), 0);
  assert.deepEqual(await violationsInBothColours(page), []);
  // Even below many warnings, the slider can be used.
  await page.getByLabel('Moment of the log').click();
  await page.getByRole('button', { name: 'To the end' }).click();
  await notes.waitFor();
  await close(page);
});

test('a warning about a template has a link to the plan', async () => {
  const tools = [
    { id: 'order', name: 'flow.echo', parameters: { number: 17 } },
    { id: 'show', name: 'flow.echo', parameters: { number: '{{order.nmber}}' } },
  ];
  const { executionId } = await server.execute(tools, 'a misspelt field');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}`);
  await page.getByLabel('Warnings').getByText(/passed on as written/).waitFor();
  await page.getByLabel('Warnings').getByRole('link', { name: 'Edit plan' }).click();
  await page.waitForURL(/\/plans\/plan_/);
  await close(page);
});

test('a failure card copies the whole message and has a link to the plan editor', async () => {
  const { executionId } = await server.execute(FAILS, 'copy it');
  await server.reaches(executionId, 'FAILED');
  const page = await open(server, `/executions/${executionId}`, { permissions: ['clipboard-read', 'clipboard-write'] });
  const card = page.getByLabel('What failed').locator('.fault');
  await card.getByRole('button', { name: 'Copy the error' }).click();
  await until(async () => (await page.evaluate(() => navigator.clipboard.readText())).trim() === `tool.failed: ${TRACE}`.trim(), 'the clipboard contains the whole message');
  await card.getByRole('link', { name: 'Edit plan' }).click();
  await page.waitForURL('**/plans/plan_*');
  await page.getByLabel('The plan as JSON').waitFor();
  await close(page);
});

test('the form of a tool and a dialog show failures in the same kind of card', async () => {
  const page = await open(server, '/tools/flow.fail', PHONE);
  await page.getByLabel(/^message/).fill(TRACE);
  await page.getByRole('button', { name: 'Call tool' }).click();
  const card = page.locator('.try-result .fault');
  await card.waitFor();
  assert.equal(await card.locator('code').first().innerText(), 'tool.failed');
  assert.equal(await card.locator('.fault-message').innerText(), CAUSE);
  await showsTheEnd(card);
  assert.deepEqual(await outside(card), []);
  await close(page);

  const { executionId } = await server.execute([{ id: 'wait', name: 'flow.wait', parameters: { name: 'never' } }], 'a dialog');
  const other = await open(server, `/executions/${executionId}`, PHONE);
  await says(other, 'Waiting');
  await other.getByRole('button', { name: 'Cancel' }).click();
  await other.route('**/graphql', async (route) => {
    const errors = [{ message: TRACE, extensions: { code: 'INTERNAL' } }];
    if (route.request().postData()?.includes('cancelExecution')) await route.fulfill({ json: { data: null, errors } });
    else await route.fallback();
  });
  await other.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click();
  const refused = other.getByRole('dialog').locator('.fault');
  await refused.waitFor();
  assert.equal(await refused.locator('.fault-message').innerText(), CAUSE);
  await showsTheEnd(refused);
  assert.deepEqual(await outside(refused), []);
  await close(other);
});

for (const [name, viewport] of Object.entries({ low: { width: 1280, height: 560 }, phone: { width: 390, height: 600 }, 'turned phone': { width: 844, height: 390 } })) {
  test(`the slider and the zoom buttons below a failure card can be scrolled into view in a ${name} window`, async () => {
    const { executionId } = await server.execute(FAILS, `${name} window`);
    await server.reaches(executionId, 'FAILED');
    const page = await open(server, `/executions/${executionId}`, { viewport });
    await page.getByLabel('What failed').locator('.fault').waitFor();
    await page.locator('canvas[data-nodes]').waitFor();
    // Scrolls the page as a wheel or a finger does, with the pointer over a part that can be scrolled.
    await page.mouse.move(viewport.width / 2, 12);
    await page.locator('.page.execution').evaluate((box) => box.scrollTo(0, box.scrollHeight));
    for (const part of [page.getByRole('button', { name: 'Zoom in' }), page.getByLabel('Moment of the log'), page.getByRole('tab', { name: 'Graph' })]) {
      const isSeen = () =>
        part.evaluate((element) => {
          const { left, right, top, bottom } = element.getBoundingClientRect();
          const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
          return top >= -0.5 && bottom <= innerHeight + 0.5 && (element === hit || element.contains(hit));
        });
      if ((await part.getAttribute('role')) === 'tab') await part.evaluate((tab) => tab.scrollIntoView({ block: 'center' }));
      await until(isSeen, `${await part.evaluate((element) => element.outerHTML.slice(0, 80))} is visible`);
    }
    assert.ok((await page.locator('.graph').boundingBox()).height >= 200);
    await close(page);
  });
}

for (const [language, cause, message] of [
  ['Python', "ValueError: unknown VAT code 'QX'", TRACE],
  ['JavaScript', 'no such order', "`x` exited with status 1: /srv/a.js:3\nthrow new Error('x')\n^\n\nError: no such order\n    at find (/srv/a.js:3:4)\n    at node:internal:1:2\n\nNode.js v20.20.2"],
  ['Java', 'java.io.IOException: the disk is full', 'Exception in thread "main" java.lang.RuntimeException: outer\n\tat a.b(C.java:1)\nCaused by: java.io.IOException: the disk is full\n\tat a.b(C.java:2)\n\t... 3 more'],
  ['Rust', 'the disk is full', 'Error: could not export\n\nCaused by:\n    0: cannot write\n    1: the disk is full\n\nStack backtrace:\n   0: core::foo'],
  ['Go', 'panic: oh no', 'panic: oh no\n\ngoroutine 1 [running]:\nmain.main()\n\t/a/b.go:4 +0x1d\nexit status 2'],
]) {
  test(`the failure card shows the cause from a ${language} stack trace`, async () => {
    const page = await open(server, '/tools/flow.fail');
    await page.getByLabel(/^message/).fill(message);
    await page.getByRole('button', { name: 'Call tool' }).click();
    const card = page.locator('.try-result .fault');
    await card.waitFor();
    assert.equal(await card.locator('.fault-message').innerText(), cause);
    // The page of an execution shows the engine's finding, and the engine does not know frames of Go.
    if (language === 'Go') return close(page);
    const { executionId } = await server.execute([{ id: 'export', name: 'flow.fail', parameters: { message } }], language);
    await server.reaches(executionId, 'FAILED');
    await visit(page, server, `/executions/${executionId}`);
    const told = page.getByLabel('What failed').locator('.fault-message');
    await told.waitFor();
    assert.ok((await told.innerText()).includes(cause), await told.innerText());
    await close(page);
  });
}
