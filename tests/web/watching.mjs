// Pages that follow executions: live, after a crash of the server, and at earlier positions of the log.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { Server, close, open, says, shows, until, withBrowser } from './harness.mjs';

const WAITS = [
  { id: 'first', name: 'flow.echo', parameters: { n: 1 } },
  { id: 'gate', name: 'flow.wait', parameters: { name: 'go' }, dependsOn: 'first' },
  { id: 'last', name: 'flow.echo', parameters: { heard: '{{gate}}' } },
];

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

/** A mock model. It answers no request until `letGo` is called, and returns the answers one after another. */
async function thinker(answers) {
  const held = [];
  const model = createServer(async (asked, answer) => {
    for await (const _ of asked);
    const content = answers.shift() ?? '{"impossible": "there is nothing more to say"}';
    const message = { role: 'assistant', content };
    const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
    held.push(() => {
      answer.setHeader('content-type', 'application/json');
      answer.end(JSON.stringify({ id: 'x', object: 'chat.completion', model: 'm', choices: [{ index: 0, finish_reason: 'stop', message }], usage }));
    });
  });
  await once(model.listen(0, '127.0.0.1'), 'listening');
  return {
    base: `http://127.0.0.1:${model.address().port}/v1/`,
    letGo: async () => {
      await until(() => held.length > 0, 'the model receives a request');
      held.shift()();
    },
    stop: () => {
      model.closeAllConnections();
      model.close();
    },
  };
}

test('the page of an execution links to the replanned execution that continues it', async () => {
  const ask = { id: 'ask', name: 'flow.replan', parameters: { goal: 'say more' } };
  const more = { tools: [{ id: 'more', name: 'flow.echo', parameters: { said: 'more' } }, { ...ask, id: 'askAgain' }], executionOrder: ['more', 'askAgain'] };
  const model = await thinker([JSON.stringify(more), '{"impossible": "all is said"}']);
  const planner = { provider: 'openai', base_url: model.base, model: 'm', api_key_env: 'KEY_OF_A_TEST' };
  const own = await Server.start({ config: { planner }, environment: { KEY_OF_A_TEST: 'k' } });
  const { executionId } = await own.execute([ask], 'say it all', { replans: 3 });
  const page = await open(own, `/executions/${executionId}`);
  const onward = page.getByRole('list', { name: 'What goes on after it' });
  await onward.getByText('A model replans the execution because ask asks for it: say more').waitFor();
  await model.letGo();
  await onward.getByText('Planned anew because ask asks for it').waitFor();
  await onward.getByRole('link', { name: 'Go to version 2' }).click();
  await page.locator('.head').getByText(`after ${executionId}`).waitFor();
  await onward.getByText('A model replans the execution').waitFor();
  await model.letGo();
  await onward.getByText(/Not planned anew because askAgain asks for it.*all is said/).waitFor();
  await page.locator('.head').getByRole('link', { name: `after ${executionId}` }).click();
  await onward.getByRole('link', { name: 'Go to version 2' }).waitFor();
  await close(page);
  await own.stop();
  model.stop();
});

test('the page of an execution shows each change of its state', async () => {
  const { executionId } = await server.execute(WAITS, 'wait for the word');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'first', 'SUCCEEDED');
  await shows(page, 'gate', 'WAITING');
  await shows(page, 'last', 'PENDING');
  await says(page, 'Waiting');
  await server.signal(executionId, 'go', { word: 'now' });
  await shows(page, 'gate', 'SUCCEEDED');
  await shows(page, 'last', 'SUCCEEDED');
  await says(page, 'Completed');
  await page.locator('[data-step="last"] button').click();
  await page.locator('.inspector .json', { hasText: 'now' }).first().waitFor();
  await close(page);
});

test('the nodes of the graph have the colours of the states of their steps', async () => {
  const { executionId } = await server.execute(WAITS, 'colours');
  const page = await open(server, `/executions/${executionId}`);
  await page.locator('canvas[data-nodes="3"]').waitFor();
  const colours = () =>
    page.evaluate(() => {
      const canvas = document.querySelector('canvas[data-nodes]');
      const style = getComputedStyle(canvas);
      const wanted = ['good', 'waiting', 'idle'].map((it) => [it, style.getPropertyValue(`--${it}`).trim().slice(1)]);
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const found = new Map();
      for (let at = 0; at < data.length; at += 4) {
        const colour = [data[at], data[at + 1], data[at + 2]].map((it) => it.toString(16).padStart(2, '0')).join('');
        if (data[at + 3] === 255) found.set(colour, (found.get(colour) ?? 0) + 1);
      }
      return Object.fromEntries(wanted.map(([name, colour]) => [name, found.get(colour) ?? 0]));
    });
  // The graph can change its size while the page loads, so each check compares colours within one drawing.
  const isOneOfEach = ({ good, waiting, idle }) => good > 20 && waiting > 20 && idle > 20;
  await until(async () => isOneOfEach(await colours()), 'the colours show one succeeded, one waiting and one pending step');
  await server.signal(executionId, 'go');
  const areAllGood = ({ good, waiting, idle }) => good > 20 && waiting === 0 && idle === 0;
  await until(async () => areAllGood(await colours()), 'all nodes have the colour of succeeded steps');
  await close(page);
});

test('a large graph opens with edges and readable texts at the waiting step', async () => {
  const chain = Array.from({ length: 60 }, (_, at) => ({ id: `s${at}`, name: 'flow.echo', parameters: { n: at }, dependsOn: at === 0 ? [] : [`s${at - 1}`] }));
  chain[50] = { ...chain[50], name: 'flow.wait', parameters: { name: 'never' } };
  const { executionId } = await server.execute(chain, 'a long chain');
  await server.reaches(executionId, 'WAITING');
  for (const viewport of [{ width: 1280, height: 800 }, { width: 375, height: 700 }]) {
    const page = await open(server, `/executions/${executionId}`, { viewport });
    await page.locator('canvas[data-nodes="60"]').waitFor();
    const drawn = () =>
      page.evaluate(() => {
        const [below, above] = document.querySelectorAll('.graph-frame canvas');
        const count = (canvas, isIt) => {
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let found = 0;
          for (let at = 0; at < data.length; at += 4) if (isIt(data[at], data[at + 1], data[at + 2], data[at + 3])) found += 1;
          return found;
        };
        const read = (name) => getComputedStyle(above).getPropertyValue(name).trim().slice(1);
        // Similar colours are equal here, because letters have soft edges, so few of their pixels have the exact colour.
        const is = (colour) => {
          const wanted = [0, 2, 4].map((it) => Number.parseInt(colour.slice(it, it + 2), 16));
          return (...it) => it[3] === 255 && wanted.every((part, at) => Math.abs(part - it[at]) < 40);
        };
        return { edges: count(below, (_r, _g, _b, a) => a > 40), words: count(above, is(read('--text'))), waiting: count(above, is(read('--waiting'))) };
      });
    await until(async () => (await drawn()).words > 50, 'texts are drawn');
    await until(async () => (await drawn()).edges > 50, 'edges are drawn');
    await until(async () => (await drawn()).waiting > 20, 'the waiting step is visible');
    await close(page);
  }
});

test('the page shows that the server is lost, reconnects to it, and misses no event', async () => {
  const { executionId } = await server.execute(WAITS, 'survive');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  const list = await open(server, '/requests');
  await shows(page, 'gate', 'WAITING');
  await server.kill();
  for (const it of [page, list]) await it.getByText('Connection lost – reconnecting').waitFor();
  await server.begin();
  // The signal arrives before the page knows that the server is back.
  await server.signal(executionId, 'go');
  for (const it of [page, list]) await it.getByText('Connection lost – reconnecting').waitFor({ state: 'detached' });
  await shows(page, 'last', 'SUCCEEDED');
  await says(page, 'Completed');
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { seq } }', { id: executionId });
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByText(`${execution.seq} events`, { exact: true }).waitFor();
  await list.locator(`[data-state="COMPLETED"]`).first().waitFor();
  await close(page);
  await close(list);
});

test('the slider shows the execution at each position of its log', async () => {
  const { executionId } = await server.execute(WAITS, 'past');
  await server.reaches(executionId, 'WAITING');
  await server.signal(executionId, 'go');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'last', 'SUCCEEDED');
  const moment = page.getByLabel('Moment of the log');
  await moment.focus();
  await page.keyboard.press('Home');
  for (const step of ['first', 'gate', 'last']) await shows(page, step, 'PENDING');
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowRight');
  await shows(page, 'first', 'SUCCEEDED');
  await shows(page, 'last', 'PENDING');
  await page.getByRole('button', { name: 'To the end' }).click();
  await shows(page, 'last', 'SUCCEEDED');
  await close(page);
});

const WORDS = { WAITING: 'Waiting', COMPLETED: 'Completed', FAILED: 'Failed', CANCELLED: 'Cancelled', PAUSED: 'Paused' };

for (const [name, tools, options, state, steer] of [
  [
    'loops, retries, conditions and approvals',
    [
      { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
      { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}' },
      { id: 'none', name: 'flow.echo', parameters: {}, forEach: '{{list.nothing}}', onError: 'continue' },
      { id: 'flaky', name: 'flow.fail', parameters: { message: 'once', times: 1, retryable: true }, retry: { maxAttempts: 3, backoffMs: 1 } },
      { id: 'ignored', name: 'flow.fail', parameters: { message: 'always' }, onError: 'ignore' },
      { id: 'not', name: 'flow.noop', parameters: {}, when: 'steps["list"].items.size() > 5' },
      { id: 'behind', name: 'flow.noop', parameters: {}, dependsOn: ['not'] },
      { id: 'decide', name: 'flow.fail', parameters: { message: 'what now' }, onError: 'wait' },
      { id: 'signal', name: 'flow.wait', parameters: { name: 'never' } },
      { id: 'asks', name: 'flow.noop', parameters: {}, dependsOn: ['each'], requiresApproval: true },
      { id: 'last', name: 'flow.noop', parameters: {}, dependsOn: ['asks'] },
    ],
    {},
    'WAITING',
  ],
  [
    'steps that were compensated',
    [
      { id: 'one', name: 'flow.echo', parameters: { n: 1 }, compensate: { name: 'flow.echo', parameters: { undo: 1 } } },
      { id: 'two', name: 'flow.echo', parameters: { n: 2 }, dependsOn: ['one'] },
      { id: 'bad', name: 'flow.fail', parameters: { message: 'no' }, dependsOn: ['two'] },
      { id: 'never', name: 'flow.noop', parameters: {}, dependsOn: ['bad'] },
    ],
    { compensateOnFailure: true },
    'FAILED',
  ],
  [
    'an execution that was cancelled',
    [
      { id: 'one', name: 'flow.echo', parameters: { n: 1 } },
      { id: 'wait', name: 'flow.wait', parameters: { name: 'never' }, dependsOn: ['one'] },
      { id: 'never', name: 'flow.noop', parameters: {}, dependsOn: ['wait'] },
    ],
    {},
    'CANCELLED',
    (id) => server.ask('mutation($id: ID!) { cancelExecution(executionId: $id) { state } }', { id }),
  ],
  [
    'a loop whose items all wait',
    [
      { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
      { id: 'each', name: 'flow.fail', parameters: { message: 'item {{item}}' }, forEach: '{{list.items}}', onError: 'wait' },
      { id: 'after', name: 'flow.noop', parameters: {}, dependsOn: ['each'] },
    ],
    {},
    'WAITING',
  ],
  [
    'a loop with an item that is retried after a delay',
    [
      { id: 'list', name: 'flow.echo', parameters: { items: [1] } },
      { id: 'each', name: 'flow.fail', parameters: { message: 'item {{item}}', retryable: true }, forEach: '{{list.items}}', retry: { maxAttempts: 2, backoffMs: 3_600_000 } },
    ],
    {},
    'WAITING',
  ],
  [
    'a failed compensation, and a loop that was compensated',
    [
      { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
      { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}', compensate: { name: 'flow.echo', parameters: { undo: 1 } } },
      { id: 'two', name: 'flow.echo', parameters: { n: 2 }, dependsOn: ['each'], compensate: { name: 'flow.fail', parameters: { message: 'cannot undo' } } },
      { id: 'bad', name: 'flow.fail', parameters: { message: 'no' }, dependsOn: ['two'] },
    ],
    { compensateOnFailure: true },
    'FAILED',
  ],
  ['a dry run', WAITS, { dryRun: true }, 'COMPLETED'],
]) {
  test(`the page computes the same states of steps as the server: ${name}`, async () => {
    const { executionId } = await server.execute(tools, name, options);
    if (steer) {
      await server.reaches(executionId, 'WAITING');
      await steer(executionId);
    }
    await server.reaches(executionId, state);
    const query = 'query($id: ID!) { execution(executionId: $id) { steps { stepId state attempts } } }';
    const page = await open(server, `/executions/${executionId}?view=steps`);
    // Repeats the comparison, because a step with retries can change between the query and the check of the page.
    for (let more = 4; more >= 0; more -= 1) {
      const { execution } = await server.ask(query, { id: executionId });
      const same = execution.steps.map((it) => shows(page, it.stepId, it.state, more ? 5_000 : undefined));
      if ((await Promise.allSettled(same)).every((it) => it.status === 'fulfilled')) break;
      assert.ok(more > 0, 'the page shows other states than the server has');
    }
    await says(page, WORDS[state]);
    await close(page);
  });
}

test('every view shows that a compensation failed', async () => {
  const tools = [
    { id: 'two', name: 'flow.echo', parameters: { n: 2 }, compensate: { name: 'flow.fail', parameters: { message: 'cannot undo it' } } },
    { id: 'bad', name: 'flow.fail', parameters: { message: 'no' }, dependsOn: ['two'] },
  ];
  const { executionId } = await server.execute(tools, 'not undone', { compensateOnFailure: true });
  await server.reaches(executionId, 'FAILED');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await page.getByLabel('What failed').getByText('cannot undo it').first().waitFor();
  await page.locator('[data-step="two"]', { hasText: 'Succeeded, not undone' }).waitFor();
  assert.match(await page.locator('.head .meter svg').getAttribute('aria-label'), /1 could not be undone/);
  await page.locator('[data-step="two"] button').click();
  await page.locator('.inspector .fault', { hasText: 'cannot undo it' }).waitFor();
  await close(page);
});

test('each item of a loop over sub-plans has a link to its child execution', async () => {
  const inlinePlan = { tools: [{ id: 'boom', name: 'flow.fail', parameters: { message: 'deep trouble' } }] };
  const tools = [{ id: 'list', name: 'flow.echo', parameters: { items: [1, 2] } }, { id: 'kids', inlinePlan, forEach: '{{list.items}}' }];
  const { executionId } = await server.execute(tools, 'children');
  await server.reaches(executionId, 'FAILED');
  const query = 'query($id: ID!) { execution(executionId: $id) { step(stepId: "kids") { items { childExecutionId } } } }';
  const { execution } = await server.ask(query, { id: executionId });
  const children = execution.step.items.map((it) => it.childExecutionId);
  const page = await open(server, `/executions/${executionId}?step=kids`);
  await page.getByLabel('What failed').getByRole('link', { name: /^exec_/ }).waitFor();
  await page.locator('.inspector .fault').getByRole('link', { name: /^exec_/ }).first().waitFor();
  await page.locator('[data-item="1"]').getByRole('link', { name: 'Its execution' }).click();
  await page.waitForURL(`**/executions/${children[1]}`);
  await page.getByText('sub-execution of kids[1]').waitFor();
  await close(page);
});

test('new events do not scroll the log while the user reads older events', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: Array.from({ length: 40 }, (_, at) => at) } },
    { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}' },
    { id: 'gate', name: 'flow.wait', parameters: { name: 'go' }, dependsOn: ['each'] },
    { id: 'more', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}', dependsOn: ['gate'] },
    { id: 'end', name: 'flow.wait', parameters: { name: 'never' }, dependsOn: ['more'] },
  ];
  const { executionId } = await server.execute(tools, 'read on');
  await server.reaches(executionId, 'WAITING');
  const page = await open(server, `/executions/${executionId}?view=events`);
  const list = page.getByRole('list', { name: 'Events' });
  await until(async () => (await list.evaluate((it) => it.scrollTop)) > 0, 'the list is scrolled to its end at first');
  await list.evaluate((it) => (it.scrollTop = 60));
  const before = await page.locator('.events .pane-bar .faint').textContent();
  await server.signal(executionId, 'go');
  await until(async () => (await page.locator('.events .pane-bar .faint').textContent()) !== before, 'the number of events has changed');
  await until(async () => Number.parseInt(await page.locator('.events .pane-bar .faint').textContent(), 10) > 160, 'all events are counted');
  assert.equal(await list.evaluate((it) => it.scrollTop), 60);
  await list.evaluate((it) => (it.scrollTop = it.scrollHeight));
  await close(page);
});

test('the URL contains the position of the slider', async () => {
  const { executionId } = await server.execute(WAITS, 'moments');
  await server.reaches(executionId, 'WAITING');
  await server.signal(executionId, 'go');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'last', 'SUCCEEDED');
  await page.getByLabel('Moment of the log').focus();
  await page.keyboard.press('Home');
  await page.waitForURL(/at=1(&|$)/);
  await page.reload();
  await shows(page, 'first', 'PENDING');
  await page.getByRole('button', { name: 'To the end' }).click();
  await page.waitForURL((url) => !url.searchParams.has('at'));
  await close(page);
});

test('the items of a loop are shown while it runs', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: Array.from({ length: 5_000 }, (_, at) => at) } },
    { id: 'each', name: 'flow.sleep', parameters: { ms: 100 }, forEach: '{{list.items}}', maxParallel: 2 },
  ];
  const { executionId } = await server.execute(tools, 'under way');
  const page = await open(server, `/executions/${executionId}?view=steps&step=each`);
  await page.locator('[data-item="20"][data-state="SUCCEEDED"]').waitFor();
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { state } }', { id: executionId });
  assert.equal(execution.state, 'IN_PROGRESS');
  await page.getByLabel('Which items').selectOption('RUNNING');
  await page.locator('[data-item][data-state="RUNNING"]').first().waitFor();
  await server.ask('mutation($id: ID!) { cancelExecution(executionId: $id) { state } }', { id: executionId });
  await says(page, 'Cancelled');
  await close(page);
});

test('every view of a running loop shows the number of finished items', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: [...Array(11).fill(0), 600_000] } },
    { id: 'each', name: 'flow.sleep', parameters: { ms: '{{item}}' }, forEach: '{{list.items}}' },
  ];
  const { executionId } = await server.execute(tools, 'many items');
  const page = await open(server, `/executions/${executionId}?step=each`);
  await page.locator('.head .facts').getByText('11 of 12 items').waitFor();
  assert.ok(Math.abs(Number(await page.locator('.head .meter .fill-running').getAttribute('width')) - (11 / 12) * 50) < 0.01);
  await page.locator('.inspector .facts').getByText('11 of 12 items').waitFor();
  await page.getByRole('tab', { name: 'Steps' }).click();
  await page.locator('[data-step="each"]').getByText('11 of 12 items').first().waitFor();
  await page.getByRole('tab', { name: 'Timeline' }).click();
  await page.locator('.timeline-row .bar-time', { hasText: '11 of 12 items' }).waitFor();
  await close(page);
});

test('no label of the timeline covers a bar', async () => {
  const tools = [
    { id: 'short', name: 'flow.sleep', parameters: { ms: 30 } },
    { id: 'middle', name: 'flow.sleep', parameters: { ms: 300 } },
    { id: 'late', name: 'flow.sleep', parameters: { ms: 30 }, dependsOn: 'middle' },
    { id: 'on', name: 'flow.wait', parameters: { name: 'never' } },
  ];
  const { executionId } = await server.execute(tools, 'labels');
  await server.reaches(executionId, 'WAITING');
  for (const viewport of [{ width: 1280, height: 800 }, { width: 390, height: 844 }]) {
    const page = await open(server, `/executions/${executionId}?view=timeline`, { viewport });
    await until(async () => (await page.locator('.timeline-row').count()) === 4, 'all four steps have a row');
    const covered = await page.locator('.timeline-row').evaluateAll((rows) =>
      rows.flatMap((row) => {
        const label = row.querySelector('.bar-time').getBoundingClientRect();
        const bars = [...row.querySelectorAll('.bar')].map((bar) => bar.getBoundingClientRect());
        return bars.filter((bar) => bar.right > label.left + 0.5).map((bar) => `${row.textContent}: ${bar.right} behind ${label.left}`);
      }),
    );
    assert.deepEqual(covered, []);
    await close(page);
  }
});

test('durations count neither the wait for a person nor a sleep as work', async () => {
  const { executionId } = await server.execute([{ id: 'ask', name: 'flow.echo', parameters: { n: 1 }, requiresApproval: true }, { id: 'nap', name: 'flow.sleep', parameters: { ms: 1_200 }, dependsOn: 'ask' }], 'wait and work');
  await server.reaches(executionId, 'WAITING');
  const since = Date.now();
  await until(() => Date.now() - since > 1_200, '1.2 seconds have passed');
  const approve = 'mutation($id: ID!) { approveStep(executionId: $id, stepId: "ask", approved: true) { executionId } }';
  await server.ask(approve, { id: executionId });
  await server.reaches(executionId, 'COMPLETED');
  const query = 'query($id: ID!) { execution(executionId: $id) { step(stepId: "ask") { durationMs workMs waitedMs } request { timeline { kind durationMs waitedMs } } } }';
  const { step, request } = (await server.ask(query, { id: executionId })).execution;
  assert.ok(step.workMs < 1_000 && step.waitedMs >= 1_200 && step.durationMs >= step.workMs + step.waitedMs, JSON.stringify(step));
  const approved = request.timeline.find((it) => it.kind === 'step_approved');
  assert.ok(approved.durationMs === null && approved.waitedMs >= 1_200, JSON.stringify(approved));
  const page = await open(server, `/executions/${executionId}?view=steps&step=ask`);
  const spent = /^((<1|\d+) ms, )?waited \d+\.\d+ s$/;
  await page.locator('.inspector .facts').getByText(spent).waitFor();
  await page.locator('[data-step="ask"]').getByText(spent).waitFor();
  await page.locator('[data-step="nap"]').getByText(/^waited \d+\.\d+ s$/).waitFor();
  await close(page);
});

test('the timeline includes all items of a long loop, including the first ones', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: Array.from({ length: 500 }, (_, at) => at) } },
    { id: 'each', name: 'flow.sleep', parameters: { ms: 1 }, forEach: '{{list.items}}', maxParallel: 20 },
  ];
  const { executionId } = await server.execute(tools, 'long loop');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=timeline`);
  const row = page.locator('.timeline-row', { hasText: 'each' });
  await row.waitFor();
  const [group, first, count] = await row.evaluate((it) => {
    const left = (bar) => Number.parseFloat(bar.style.left);
    const bars = [...it.querySelectorAll('.bar:not(.tone-group)')];
    return [left(it.querySelector('.tone-group')), Math.min(...bars.map(left)), bars.length];
  });
  assert.ok(first - group < 2, `the first call is drawn ${first - group} % after the start of the loop`);
  assert.ok(count < 400, `${count} bars`);
  await close(page);
});

test('the timeline underlines the names of the steps on the critical path', async () => {
  const tools = [
    { id: 'a', name: 'flow.echo', parameters: { n: 1 } },
    { id: 'b', name: 'flow.sleep', parameters: { ms: 1_000 }, dependsOn: 'a' },
    { id: 'c', name: 'flow.echo', parameters: { n: 2 }, dependsOn: 'b' },
    { id: 'beside', name: 'flow.echo', parameters: { n: 3 } },
  ];
  const { executionId } = await server.execute(tools, 'critical');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?view=timeline`);
  await page.locator('.timeline-row').first().waitFor();
  const marked = await page.locator('.is-critical .timeline-name .cut').allTextContents();
  assert.deepEqual(marked, ['a', 'b', 'c']);
  const line = await page.locator('.is-critical .timeline-name .cut').first().evaluate((it) => getComputedStyle(it).textDecorationLine);
  assert.equal(line, 'underline');
  await close(page);
});

test('durations are correct although the clock of the browser is wrong', async () => {
  for (const minutes of [-7, 7]) {
    const { executionId } = await server.execute([{ id: 'gate', name: 'flow.wait', parameters: { name: 'go' } }], 'clocks');
    await server.reaches(executionId, 'WAITING');
    const page = await open(server, '/');
    await page.addInitScript((shift) => {
      const now = Date.now;
      Date.now = () => now() + shift;
    }, minutes * 60_000);
    await page.goto(`${server.url}/executions/${executionId}?step=gate`);
    await says(page, 'Waiting');
    const facts = page.locator('.head .facts');
    await until(async () => /(^|\s)\d+(\.\d+)? m?s(\s|$)/.test(await facts.innerText()), 'the duration is shown in seconds');
    assert.ok(!/\d (m|min|h) /.test(await facts.innerText()), await facts.innerText());
    await close(page);
  }
});

test('text that is typed while a search starts is kept', async () => {
  await server.plan([{ id: 'a', name: 'flow.noop' }], 'abcdef');
  const page = await open(server, '/requests');
  const box = page.getByLabel('Search requests');
  await box.waitFor();
  // The third letter is typed immediately after the first two letters started a search.
  await box.evaluate((it) => {
    const type = (text) => {
      it.value = text;
      it.dispatchEvent(new Event('input', { bubbles: true }));
    };
    const replaced = history.replaceState.bind(history);
    history.replaceState = (...args) => {
      history.replaceState = replaced;
      replaced(...args);
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => type(`${it.value}c`);
      port2.postMessage(0);
    };
    type('ab');
  });
  await page.waitForURL(/search=abc(&|$)/);
  assert.equal(await box.inputValue(), 'abc');
  await close(page);
});

test('the list of requests shows new requests and states without a reload', async () => {
  const page = await open(server, '/requests');
  const { requestId, executionId } = await server.execute(WAITS, 'a newcomer');
  const row = page.locator(`[data-id="${requestId}"]`);
  await row.waitFor();
  await page.locator(`[data-id="${requestId}"][data-state="WAITING"]`).waitFor();
  await server.signal(executionId, 'go');
  await page.locator(`[data-id="${requestId}"][data-state="COMPLETED"]`).waitFor();
  await page.getByLabel('Search requests').fill('newcomer');
  await page.waitForURL(/search=newcomer/);
  await until(async () => (await page.locator('.list-row').count()) === 1, 'one row matches the search');
  await page.reload();
  assert.equal(await page.getByLabel('Search requests').inputValue(), 'newcomer');
  await row.getByRole('link').click();
  await page.waitForURL(`**/requests/${requestId}`);
  await page.getByRole('link', { name: new RegExp(executionId) }).click();
  await page.waitForURL(`**/executions/${executionId}`);
  await close(page);
});

test('the list misses no row even if more rows are new than one query returns', async () => {
  const one = [{ id: 'a', name: 'flow.noop' }];
  const made = [];
  const make = async (n) => {
    for (let at = 0; at < n; at += 10) {
      made.push(...(await Promise.all(Array.from({ length: 10 }, (_, it) => server.plan(one, `rows ${at + it}`)))).map((it) => it.requestId));
    }
  };
  await make(70);
  const { requestId, executionId } = await server.execute(WAITS, 'rows that wait');
  made.push(requestId);
  await server.reaches(executionId, 'WAITING');
  await make(60);
  const page = await open(server, '/requests?search=rows&since=1h');
  const foot = page.locator('.list-foot');
  await foot.getByText('50 shown').waitFor();
  const asked = await page.waitForRequest((it) => it.postData()?.includes('query Requests'));
  const { from } = JSON.parse(asked.postData()).variables.filter;
  await foot.getByRole('button', { name: 'Show older ones' }).click();
  await foot.getByText('131 shown').waitFor();
  // While the page cannot reach the server, more requests are created than one query returns.
  await page.route('**/graphql', (route) => route.abort());
  await make(120);
  await page.unroute('**/graphql');
  await foot.getByText('251 shown').waitFor();
  // A row that is not visible changes its state, too, when its execution finishes.
  await server.signal(executionId, 'go');
  await server.reaches(executionId, 'COMPLETED');
  const list = page.getByRole('list', { name: 'Requests' });
  const seen = new Set();
  for (let top = 0; ; top += 400) {
    await list.evaluate((it, to) => (it.scrollTop = to), top);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    for (const id of await page.locator('.list-row').evaluateAll((rows) => rows.map((it) => it.dataset.id))) seen.add(id);
    if (await list.evaluate((it) => it.scrollTop + it.clientHeight >= it.scrollHeight - 1)) break;
  }
  assert.deepEqual(made.filter((it) => !seen.has(it)), []);
  const at = [...made].reverse().indexOf(requestId);
  await list.evaluate((it, to) => (it.scrollTop = to), at * 52 - 100);
  await page.locator(`[data-id="${requestId}"][data-state="COMPLETED"]`).waitFor();
  const later = await page.waitForRequest((it) => it.postData()?.includes('query Requests'));
  assert.equal(JSON.parse(later.postData()).variables.filter.from, from);
  await close(page);
});
