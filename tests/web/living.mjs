// The page by keyboard, with large plans, in narrow windows and with access tokens, and the files that the server sends.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';

import { IS_TIMED, Server, close, open, says, until, visit, withBrowser } from './harness.mjs';

const PLAN = [
  { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
  { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}' },
  { id: 'fails', name: 'flow.fail', parameters: { message: 'as it must' }, onError: 'continue', dependsOn: 'list', retry: { maxAttempts: 2, backoffMs: 1 } },
  { id: 'skipped', name: 'flow.noop', parameters: {}, dependsOn: 'fails' },
  { id: 'asks', name: 'flow.echo', parameters: { all: '{{each}}' }, requiresApproval: true },
];

let server;
let executionId;
let requestId;
withBrowser();
before(async () => {
  server = await Server.start();
  ({ executionId, requestId } = await server.execute(PLAN, 'a bit of everything'));
  await server.reaches(executionId, 'WAITING');
});
after(() => server?.stop());

test('the arrow keys move through the graph', async () => {
  const page = await open(server, `/executions/${executionId}`);
  const graph = page.getByRole('application');
  await graph.focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('heading', { name: 'list', exact: true }).waitFor();
  await page.keyboard.press('ArrowRight');
  // Waits for the heading before the URL, because the next key starts from the shown step, and the URL can change earlier than the heading.
  await page.getByRole('heading', { name: /^(each|fails)$/ }).waitFor();
  await page.waitForURL(/step=(each|fails)/);
  await page.keyboard.press('ArrowLeft');
  await page.getByRole('heading', { name: 'list', exact: true }).waitFor();
  await page.waitForURL(/step=list/);
  await page.keyboard.press('Escape');
  await page.locator('.inspector').waitFor({ state: 'detached' });
  await close(page);
});

test('the Tab key leads from the top of the page to all links', async () => {
  const page = await open(server, '/requests');
  await page.locator('.list-row').first().waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), 'To the content');
  const seen = new Set();
  for (let n = 0; n < 40; n += 1) {
    await page.keyboard.press('Tab');
    seen.add(await page.evaluate(() => document.activeElement.getAttribute('href') ?? document.activeElement.textContent.trim()));
  }
  for (const it of ['/new', '/tools', '/toolkit', '/graphiql', `/requests/${requestId}`]) assert.ok(seen.has(it), it);
  await close(page);
});

test('the graph of a plan with 2,000 steps opens fast and needs few elements', async () => {
  const random = seeded(7);
  const tools = Array.from({ length: 2_000 }, (_, at) => {
    const on = new Set(Array.from({ length: Math.floor(random() * 5) }, () => Math.max(0, at - 1 - Math.floor(random() * 60))));
    return { id: `s${at}`, name: 'flow.echo', parameters: { n: at }, dependsOn: at === 0 ? [] : [...on].map((it) => `s${it}`) };
  });
  const { executionId } = await server.execute(tools, 'two thousand steps');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, '/');
  const began = Date.now();
  await page.goto(`${server.url}/executions/${executionId}`);
  await page.locator('canvas[data-nodes="2000"]').waitFor();
  await page.getByRole('button', { name: 'Zoom in' }).click();
  const took = Date.now() - began;
  console.log(`a plan of 2,000 steps could be used after ${took} ms`);
  if (IS_TIMED) assert.ok(took < 2_000, `${took} ms`);
  for (const view of ['Timeline', 'Steps', 'Events', 'Graph']) {
    await page.getByRole('tab', { name: view }).click();
    await page.locator(view === 'Graph' ? 'canvas[data-nodes]' : '.virtual [role=listitem]').first().waitFor();
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    assert.ok(elements < 1_500, `${view}: ${elements} elements`);
  }
  await close(page);
});

test('a large graph can be moved while 200 events arrive in each second', async () => {
  // Forty rows of steps that sleep for 400 ms each, so a hundred steps start and a hundred end in each second.
  // They start when the page is loaded.
  const steps = IS_TIMED ? 2_000 : 400;
  const lanes = Array.from({ length: steps }, (_, at) => ({
    id: `s${at}`,
    name: 'flow.sleep',
    parameters: { ms: 400 },
    dependsOn: at < 40 ? ['gate'] : [`s${at - 40}`, `s${at - 40 + ((at * 7) % 40) - (at % 40)}`].filter((it, n, all) => all.indexOf(it) === n),
  }));
  const tools = [{ id: 'gate', name: 'flow.wait', parameters: { name: 'go' } }, ...lanes];
  const { executionId } = await server.execute(tools, 'two hundred events a second');
  const page = await open(server, `/executions/${executionId}`);
  await page.locator(`canvas[data-nodes="${steps + 1}"]`).waitFor();
  const box = await page.locator('.graph-frame').boundingBox();
  await server.signal(executionId, 'go');
  const frames = page.evaluate(async (steps) => {
    const gaps = [];
    let last = performance.now();
    const text = document.querySelector('.head .meter-text');
    const first = Number.parseInt(text.textContent, 10);
    const begin = last;
    // Measures the time between frames until half of the steps are finished.
    while (Number.parseInt(text.textContent, 10) < Math.min(first + steps / 2, steps + 1)) {
      const now = await new Promise(requestAnimationFrame);
      gaps.push(now - last);
      last = now;
    }
    gaps.sort((a, b) => a - b);
    const at = (share) => Math.round(gaps[Math.floor((gaps.length - 1) * share)]);
    return { steps: steps / 2, seconds: Math.round((last - begin) / 100) / 10, frames: gaps.length, half: at(0.5), most: at(0.95), longest: at(1) };
  }, steps);
  let isDone = false;
  void frames.finally(() => {
    isDone = true;
  });
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.wheel(0, -900);
  await page.mouse.down();
  for (let n = 0; !isDone; n += 1) {
    await page.mouse.move(box.x + box.width / 2 + 150 * Math.sin(n / 20), box.y + box.height / 2 + 80 * Math.cos(n / 20));
  }
  await page.mouse.up();
  const found = await frames;
  console.log(`while it is moved and events arrive: ${JSON.stringify(found)}, in milliseconds`);
  if (IS_TIMED) assert.ok(found.most < 50, JSON.stringify(found));
  await close(page);
});

test('the times on the axis of the timeline do not overlap in narrow windows', async () => {
  const page = await open(server, '/');
  for (const width of [360, 390, 600, 760, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    await visit(page, server, `/executions/${executionId}?view=timeline`);
    await page.locator('.timeline-row').first().waitFor();
    const boxes = await page.locator('.timeline-axis .tick').evaluateAll((ticks) =>
      ticks
        // Replaces each time by the longest possible time, because the test must cover all executions.
        .map((tick) => (tick.textContent === '0' ? tick : Object.assign(tick, { textContent: '59 m 59 s' })))
        .map((tick) => tick.getBoundingClientRect())
        .filter((box) => box.width > 0)
        .map(({ left, right }) => [left, right]),
    );
    assert.ok(boxes.length >= 2, `${width}: ${boxes.length} times`);
    for (const [at, [left]] of boxes.entries()) if (at > 0) assert.ok(left >= boxes[at - 1][1] + 4, `${width}: ${JSON.stringify(boxes)}`);
    const bars = await page.locator('.timeline-axis .timeline-bars').evaluate((bars) => bars.clientWidth);
    assert.ok(bars >= 120, `${width}: ${bars} pixels for bars`);
  }
  await close(page);
});

test('GraphiQL loads nothing from other servers, and its example operations work', async () => {
  const page = await open(server, '/');
  const foreign = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(server.url) && !/^(data|blob):/.test(request.url())) foreign.push(request.url());
  });
  await page.goto(`${server.url}/graphiql`);
  const execute = page.getByRole('button', { name: /Execute query/ });
  // Clicks again, because a click before the schema is loaded sends no query.
  const requests = page.locator('.graphiql-response', { hasText: '"requestId"' });
  await until(async () => {
    await execute.click();
    return requests.waitFor({ timeout: 2_000 }).then(() => true, () => false);
  }, 'the requests are listed');
  await page.getByRole('tab', { name: 'ValidatePlan' }).click();
  await page.locator('.graphiql-query-editor', { hasText: 'validatePlan' }).waitFor();
  // Clicks again, because GraphiQL is not ready immediately after the change of the tab.
  const layers = page.locator('.graphiql-response', { hasText: '"layers"' });
  await until(async () => {
    await execute.click();
    return layers.waitFor({ timeout: 2_000 }).then(() => true, () => false);
  }, 'the plan is checked');
  await page.getByRole('tab', { name: 'WatchExecution' }).waitFor();
  assert.deepEqual(foreign, []);
  await close(page);
});

test('the server compresses answers if the client accepts it, but no event streams', async () => {
  const ask = async (headers, body) => {
    const sent = request(`${server.url}/graphql`, { method: 'POST', headers: { 'content-type': 'application/json', ...headers } });
    sent.end(JSON.stringify(body));
    const [answer] = await once(sent, 'response');
    const parts = [];
    for await (const part of answer) parts.push(part);
    return { headers: answer.headers, bytes: Buffer.concat(parts) };
  };
  const large = { query: '{ toolSets { name tools { name description inputSchema } } }' };
  const plain = await ask({}, large);
  assert.equal(plain.headers['content-encoding'], undefined);
  const packed = await ask({ 'accept-encoding': 'gzip, br' }, large);
  assert.equal(packed.headers['content-encoding'], 'gzip');
  assert.match(packed.headers.vary, /accept-encoding/i);
  assert.deepEqual(gunzipSync(packed.bytes), plain.bytes);
  console.log(`${plain.bytes.length} bytes of tools become ${packed.bytes.length}`);
  assert.ok(packed.bytes.length * 3 < plain.bytes.length);
  const small = await ask({ 'accept-encoding': 'gzip' }, { query: '{ __typename }' });
  assert.equal(small.headers['content-encoding'], undefined);
  const refused = await ask({ 'accept-encoding': 'gzip;q=0' }, large);
  assert.equal(refused.headers['content-encoding'], undefined);
  const id = (await server.execute([{ id: 'a', name: 'flow.echo', parameters: { long: 'x'.repeat(5_000) } }], 'told bit by bit')).executionId;
  const told = { query: 'subscription($id: ID!) { executionEvents(executionId: $id) { seq data } }', variables: { id } };
  const stream = await ask({ 'accept-encoding': 'gzip', accept: 'text/event-stream' }, told);
  assert.match(stream.headers['content-type'], /event-stream/);
  assert.equal(stream.headers['content-encoding'], undefined);
  assert.match(stream.bytes.toString(), /event: complete/);
});

function seeded(seed) {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

test('the page asks for an access token if the server requires one, and keeps the token in its tab', async () => {
  const config = { access: { tokens: [{ name: 'me', token_env: 'ME', role: 'admin' }] } };
  const guarded = await Server.start({ config, environment: { ME: 'a-long-secret-of-mine' } });
  try {
    const page = await open(guarded, '/');
    const field = page.getByLabel('Access token');
    await field.fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('does not know this token').waitFor();
    await field.fill('a-long-secret-of-mine');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'No requests yet' }).waitFor();
    await page.goto(`${guarded.url}/new`);
    await page.getByRole('button', { name: 'write the plan as JSON' }).click();
    await page.getByText('Plan is valid.').waitFor();
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await says(page, 'Completed');
    const kept = await page.evaluate(() => [JSON.stringify({ ...localStorage }), document.cookie]);
    assert.deepEqual(kept, ['{}', '']);
    const other = await page.context().newPage();
    await other.goto(guarded.url);
    await other.getByLabel('Access token').waitFor();
    await other.close();
    await close(page);
  } finally {
    await guarded.stop();
  }
});
