// The pages of the toolkit and the tools, with unusual names, many tools, and unusual parameters in the URL.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { Server, close, open, until, visit, withBrowser } from './harness.mjs';

const TOOLS = 5_000;
const folder = mkdtempSync(join(tmpdir(), 'faber-tools-'));

let server;
withBrowser();
before(async () => {
  const file = join(folder, 'tools.json');
  const tools = Array.from({ length: TOOLS }, (_, at) => ({ name: `tool${at}`, description: `Does thing number ${at} of many, and nothing else.`, examples: [] }));
  writeFileSync(file, JSON.stringify({ tools_list: tools }));
  server = await Server.start({ config: { tools_files: [file], embedding: { builtin: false } } });
});
after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const act = (input) => server.ask('mutation($input: ActionInput!) { addAction(input: $input) { warnings } }', { input });

/** Records the texts and the number of dashed strokes that are drawn on canvases. */
function noteDrawing() {
  window.drawn = { texts: [], dashes: 0 };
  const { fillText, stroke } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.drawn.texts.push(text);
    return fillText.call(this, text, ...rest);
  };
  CanvasRenderingContext2D.prototype.stroke = function (...rest) {
    if (this.getLineDash().length > 0) window.drawn.dashes += 1;
    return stroke.apply(this, rest);
  };
}

test('the toolkit shows changes by other clients, the score of each edge, and dashed edges to tools', async () => {
  for (const name of ['c', 'b c']) await act({ name, description: '' });
  await act({ name: 'a b', description: '', next: [{ name: 'c', score: 0.11 }] });
  await act({ name: 'a', description: '', next: [{ name: 'b c', score: 0.99 }] });
  const page = await open(server);
  await page.addInitScript(noteDrawing);
  await page.goto(`${server.url}/toolkit`);
  await page.locator('canvas[data-nodes="4"]').waitFor();
  const drawn = () => page.evaluate(() => window.drawn);
  await until(async () => (await drawn()).texts.includes('0.99'), 'the score 0.99 is drawn');
  assert.ok((await drawn()).texts.includes('0.11'), 'the score 0.11 is drawn, too');
  assert.equal((await drawn()).dashes, 0, 'without a call of a tool, no edge is dashed');
  await act({ name: 'a', description: '', tools: [{ name: 'createAuthor', score: 0.7 }] });
  await page.locator('canvas[data-nodes="5"]').waitFor();
  await until(async () => (await drawn()).dashes > 0, 'the edge to the tool is dashed');
  await act({ name: '|x|', description: 'Has bars' });
  const box = page.getByRole('checkbox', { name: '|x|' });
  await box.check();
  await page.getByText('1 action, 0 tools').waitFor();
  await page.reload();
  await page.getByText('1 action, 0 tools').waitFor();
  assert.ok(await box.isChecked());
  await page.getByRole('checkbox', { name: 'a', exact: true }).check();
  await page.getByText('2 actions, 1 tool', { exact: true }).waitFor();
  await close(page);
});

test('the toolkit shows the description of a tool that an action names without its toolset', async () => {
  await act({ name: 'describes', description: '', tools: [{ name: 'createAuthor' }, { name: 'flow.echo' }] });
  const page = await open(server, '/');
  for (const [node, about] of [['createAuthor', 'Create'], ['flow.echo', 'Returns its parameters']]) {
    await visit(page, server, `/toolkit?node=${node}`);
    const section = page.locator('.inspector section', { has: page.getByRole('heading', { name: node, exact: true }) });
    await section.locator('p', { hasText: about }).waitFor();
  }
  await close(page);
});

test('unusual parameters in the URL become valid values', async () => {
  await act({ name: 'somewhere', description: '' });
  const page = await open(server, '/');
  for (const [query, score, away] of [
    ['threshold=abc&hops=1.5', 'Score of at least 0.50', 'Hops: 2'],
    ['threshold=-3&hops=99999999999', 'Score of at least 0.00', 'Hops: 6'],
    ['threshold=7&hops=x', 'Score of at least 1.00', 'Hops: 0'],
    ['threshold=0.25&hops=1', 'Score of at least 0.25', 'Hops: 1'],
  ]) {
    await visit(page, server, `/toolkit?actions=somewhere&node=nope&${query}`);
    await page.getByText(score, { exact: true }).waitFor();
    await page.getByText(away, { exact: true }).waitFor();
    await page.getByText('1 action, 0 tools').waitFor();
    assert.equal(await page.locator('.refused').count(), 0, query);
    assert.equal(await page.getByRole('heading', { name: 'nope' }).count(), 0, 'no panel for an unknown node');
  }
  const { executionId, requestId } = await server.execute([{ name: 'flow.echo', parameters: {} }], 'anything');
  for (const [path, tab, there] of [
    ['/tools?view=bogus', 'Toolsets', '.tool-row'],
    [`/executions/${executionId}?view=zz`, 'Graph', 'canvas[data-nodes]'],
    [`/requests/${requestId}?view=__proto__`, 'Executions', '[role=tabpanel] .list-row'],
    ['/tools?view=selection&query=author&by=CHANCE&limit=many', 'Selection', '.pane-bar'],
  ]) {
    await visit(page, server, path);
    await page.locator(there).first().waitFor();
    await page.locator('[role=tab][aria-selected=true]', { hasText: tab }).waitFor();
    if (path.includes('limit')) assert.deepEqual(await page.locator('.pane-bar select').evaluateAll((all) => all.map((it) => it.value)), ['HYBRID', '15']);
  }
  await close(page);
});

test('a list of thousands of tools draws only the visible rows', async () => {
  const page = await open(server);
  // Records the delays of timers, because the poll interval is one of them.
  await page.addInitScript(() => {
    window.pauses = [];
    const set = window.setTimeout;
    window.setTimeout = (then, ms, ...rest) => {
      window.pauses.push(ms);
      return set(then, ms, ...rest);
    };
  });
  await page.goto(`${server.url}/tools`);
  const set = page.getByRole('region', { name: 'Toolset tools' });
  await set.locator('.tool-row').first().waitFor();
  const rows = () => page.locator('.tool-row').count();
  assert.ok((await rows()) < 250, `${await rows()} rows`);
  await until(() => page.evaluate(() => window.pauses.some((it) => it > 3_000)), 'the large answer is polled less often');
  assert.ok(!(await page.evaluate(() => window.pauses.includes(3_000))), 'the large answer is not polled at the usual interval');
  const last = set.locator('.tool-row', { hasText: `tool${TOOLS - 1}` });
  assert.equal(await last.count(), 0);
  const pane = page.locator('#panel');
  await until(async () => {
    await pane.evaluate((it) => it.scrollTo(0, it.scrollHeight));
    return (await last.count()) === 1 && (await last.isVisible());
  }, 'the last is at the end');
  assert.ok((await rows()) < 250, `${await rows()} rows`);
  assert.equal(await last.locator('xpath=..').getAttribute('aria-posinset'), String(TOOLS));
  // In the middle of the list, rows fill the window although the rows above are not drawn.
  await pane.evaluate((it) => it.scrollTo(0, it.scrollHeight / 2));
  const isFull = () =>
    page.evaluate(() => {
      const [pane, rows] = [document.querySelector('#panel').getBoundingClientRect(), [...document.querySelectorAll('.tool-row')]];
      return [pane.top + 60, (pane.top + pane.bottom) / 2, pane.bottom - 5].every((y) => rows.some((it) => it.getBoundingClientRect().top <= y && it.getBoundingClientRect().bottom >= y));
    });
  await until(isFull, 'the window is full of rows');
  await page.getByLabel('Search tools').fill('tool4321 many');
  await page.locator('.tool-row', { hasText: 'tool4321' }).waitFor();
  await until(async () => (await rows()) === 1, 'the search finds one tool');
  await page.getByLabel('Search tools').fill('');
  await until(async () => (await rows()) > 20, 'the list shows all tools again');
  await close(page);
});
