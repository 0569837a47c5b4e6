// Buttons that control executions: approve, settle, cancel, retry, run and others.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, addStep, close, open, says, shows, until, violations, visit, withBrowser } from './harness.mjs';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

const ASKS = [
  { id: 'ask', name: 'flow.echo', parameters: { n: 1 }, requiresApproval: true },
  { id: 'then', name: 'flow.echo', parameters: { n: '{{ask.n}}' } },
];

test('the user approves a step', async () => {
  const { executionId } = await server.execute(ASKS, 'may I');
  const page = await open(server, `/executions/${executionId}?view=steps&step=ask`);
  await shows(page, 'ask', 'WAITING');
  await page.locator('.inspector').getByRole('button', { name: 'Approve' }).click();
  await page.getByRole('dialog').getByLabel('Comment (optional)').fill('go ahead');
  await page.getByRole('dialog').getByRole('button', { name: 'Approve' }).click();
  await shows(page, 'then', 'SUCCEEDED');
  await says(page, 'Completed');
  const query = 'query($id: ID!) { execution(executionId: $id) { events { type data } } }';
  const { execution } = await server.ask(query, { id: executionId });
  assert.equal(execution.events.find((it) => it.type === 'step_approved').data.comment, 'go ahead');
  await close(page);
});

test('every view shows the call that needs an approval, with buttons that approve and reject it', async () => {
  const refund = { id: 'refund', name: 'flow.echo', parameters: { order: '{{order.id}}', amount: 120 }, requiresApproval: true };
  for (const [answer, state] of [['Approve', 'Completed'], ['Reject', 'Failed']]) {
    const { executionId } = await server.execute([{ id: 'order', name: 'flow.echo', parameters: { id: 'o-17' } }, refund], `${answer} it above`);
    await server.reaches(executionId, 'WAITING');
    const phone = await open(server, '/', { viewport: { width: 390, height: 844 }, hasTouch: true });
    for (const view of ['graph', 'timeline', 'events']) {
      await visit(phone, server, `/executions/${executionId}?view=${view}`);
      const wait = phone.getByLabel('What it waits for').locator('li');
      await wait.getByText('refund').first().waitFor();
      const call = wait.getByLabel('The call that would be made');
      await call.waitFor();
      assert.equal(await call.textContent(), 'flow.echo {"order":"o-17","amount":120}');
      for (const name of ['Approve', 'Reject']) await wait.getByRole('button', { name }).waitFor();
      // Both answers open the same page, so only one of them checks for violations.
      if (answer === 'Approve') assert.deepEqual(await violations(phone), []);
    }
    await close(phone);
    const page = await open(server, `/executions/${executionId}`);
    await page.getByLabel('What it waits for').getByRole('button', { name: answer }).click();
    if (answer === 'Approve') await page.getByRole('dialog').getByLabel('The call that would be made').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: answer }).click();
    await says(page, state);
    await page.getByLabel('What it waits for').waitFor({ state: 'detached' });
    await close(page);
  }
});

test('the user settles a call whose outcome is unknown', async (context) => {
  const pay = { name: 'pay', description: 'Pays', parameters: { type: 'object' }, effect: 'once', run: { command: ['sleep', '60'] } };
  const own = await Server.start({ config: { toolsets: [{ name: 'shop', source: { tools: [pay] } }] } });
  context.after(() => own.stop());
  const tools = (onError) => [
    { id: 'pay', name: 'pay', parameters: { order: 'o-17' }, timeoutMs: 200, onError },
    { id: 'then', name: 'flow.echo', parameters: { receipt: '{{pay.receipt}}' } },
  ];
  // A step that waits for a decision succeeds with the output that the user enters.
  const { executionId } = await own.execute(tools('wait'), 'pay and wait');
  await own.reaches(executionId, 'WAITING');
  const page = await open(own, `/executions/${executionId}?view=steps`);
  await page.getByLabel('What it waits for').getByRole('button', { name: 'Settle…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('shop.pay {"order":"o-17"}').waitFor();
  assert.deepEqual(await violations(page), []);
  await dialog.getByLabel('Output (JSON, optional)').fill('{"receipt": 9007199254740993}');
  await dialog.getByLabel('Comment (optional)').fill('seen at the bank');
  await dialog.getByRole('button', { name: 'Settle' }).click();
  await shows(page, 'pay', 'SUCCEEDED');
  await shows(page, 'then', 'SUCCEEDED');
  await says(page, 'Completed');
  await close(page);

  // A decision about a call of a finished execution takes effect in the retry.
  const ended = await own.execute(tools('fail'), 'pay and fail');
  await own.reaches(ended.executionId, 'FAILED');
  const other = await open(own, `/executions/${ended.executionId}?view=steps&step=pay`);
  await other.locator('.inspector').getByRole('button', { name: 'Settle…' }).click();
  await other.getByRole('dialog').getByLabel('It failed').check();
  assert.equal(await other.getByRole('dialog').getByLabel('Output (JSON, optional)').count(), 0);
  await other.getByRole('dialog').getByLabel('It succeeded').check();
  await other.getByRole('dialog').getByRole('button', { name: 'Settle' }).click();
  await other.locator('.inspector').getByText('settled: succeeded').waitFor();
  await other.locator('.inspector').getByRole('button', { name: 'Settle…' }).waitFor({ state: 'detached' });
  await other.getByRole('button', { name: 'Retry failed steps' }).click();
  const retry = other.getByRole('dialog');
  await retry.getByText('The outputs of 1 step are reused. 1 step runs again').waitFor();
  assert.equal(await retry.getByLabel('What is done again').innerText(), 'then');
  assert.equal(await retry.getByLabel('Calls that are repeated').count(), 0);
  await close(other);
});

test('the approval of a loop shows that the call is made for each item', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
    { id: 'each', name: 'flow.echo', parameters: { n: '{{item}}' }, forEach: '{{list.items}}', requiresApproval: true },
  ];
  const { executionId } = await server.execute(tools, 'approve three calls');
  await server.reaches(executionId, 'WAITING');
  const page = await open(server, `/executions/${executionId}`);
  await page.getByLabel('What it waits for').getByRole('button', { name: 'Approve' }).click();
  const calls = page.getByLabel('The call that would be made');
  await until(async () => (await calls.count()) === 2, 'the banner and the dialog show the call');
  for (const call of await calls.allTextContents()) assert.equal(call, 'flow.echo {"n":"{{item}}"}\nfor each item of {{list.items}}');
  await close(page);
});

test('the user rejects a step', async () => {
  const { executionId } = await server.execute(ASKS, 'may I not');
  const page = await open(server, `/executions/${executionId}?view=steps&step=ask`);
  await page.locator('.inspector').getByRole('button', { name: 'Reject' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Reject' }).click();
  await shows(page, 'ask', 'FAILED');
  await page.locator('.inspector .fault code', { hasText: 'step.rejected' }).waitFor();
  await close(page);
});

test('an execution is cancelled only after a confirmation', async () => {
  const { executionId } = await server.execute([{ id: 'wait', name: 'flow.wait', parameters: { name: 'never' } }], 'stop me');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'wait', 'WAITING');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await says(page, 'Waiting');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click();
  await shows(page, 'wait', 'CANCELLED');
  await says(page, 'Cancelled');
  await close(page);
});

test('the dialog that cancels an execution lists the calls that compensate it', async () => {
  const tools = [
    { id: 'one', name: 'flow.echo', parameters: { n: 1 }, compensate: { name: 'flow.noop' } },
    { id: 'wait', name: 'flow.wait', parameters: { name: 'never' }, dependsOn: ['one'] },
  ];
  const { executionId } = await server.execute(tools, 'undo me');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'wait', 'WAITING');
  await page.getByRole('button', { name: 'Cancel' }).click();
  const calls = page.getByRole('dialog').getByLabel('Calls that undo it').getByRole('listitem');
  assert.equal(await calls.textContent(), 'one: flow.noop');
  assert.deepEqual(await violations(page), []);
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click();
  await says(page, 'Cancelled');
  await close(page);
});

test('the user pauses and resumes an execution and sends it a signal', async () => {
  const tools = [
    { id: 'wait', name: 'flow.wait', parameters: { name: 'word' } },
    { id: 'then', name: 'flow.echo', parameters: { it: '{{wait.x}}' } },
  ];
  const { executionId } = await server.execute(tools, 'steer me');
  const page = await open(server, `/executions/${executionId}?view=steps&step=wait`);
  await page.getByRole('button', { name: 'Pause' }).click();
  await says(page, 'Paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  await says(page, 'Waiting');
  await page.locator('.inspector').getByRole('button', { name: 'Signal' }).click();
  const dialog = page.getByRole('dialog');
  assert.equal(await dialog.getByLabel('Name').inputValue(), 'word');
  await dialog.getByLabel('Payload (JSON, optional)').fill('{"x": 7');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByLabel('Payload (JSON, optional)').fill('{"x": 7}');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await shows(page, 'then', 'SUCCEEDED');
  await close(page);
});

test('a retry from the failed step reuses the output of the step before it', async () => {
  const tools = [
    { id: 'done', name: 'flow.echo', parameters: { n: 1 } },
    { id: 'broken', name: 'flow.fail', parameters: { message: 'no luck' }, dependsOn: 'done' },
    { id: 'after', name: 'flow.noop', parameters: {}, dependsOn: 'broken' },
  ];
  const { executionId } = await server.execute(tools, 'try again');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'broken', 'FAILED');
  await shows(page, 'after', 'SKIPPED');
  await page.locator('[data-step="broken"] button').click();
  await page.locator('.inspector .fault', { hasText: 'no luck' }).waitFor();
  await page.locator('.inspector').getByRole('button', { name: 'Retry from here' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
  await page.waitForURL((url) => /\/executions\/exec_/.test(url.pathname) && !url.pathname.endsWith(executionId));
  await page.getByText(`retry of ${executionId}`).waitFor();
  await page.getByRole('tab', { name: 'Steps' }).click();
  await shows(page, 'broken', 'FAILED');
  await page.locator('[data-step="done"] button').click();
  await page.getByText('output taken over').waitFor();
  await page.getByRole('button', { name: 'Run again' }).click();
  const here = page.url();
  await page.getByRole('dialog').getByRole('button', { name: 'Run' }).click();
  await page.waitForURL((url) => !here.includes(url.pathname));
  await close(page);
});

test('the user decides about one item of a loop, or about all waiting items together', async () => {
  const tools = [
    { id: 'list', name: 'flow.echo', parameters: { items: [1, 2, 3] } },
    { id: 'each', name: 'flow.fail', parameters: { message: 'item {{item}}' }, forEach: '{{list.items}}', onError: 'wait' },
  ];
  const { executionId } = await server.execute(tools, 'decide');
  await server.reaches(executionId, 'WAITING');
  const page = await open(server, `/executions/${executionId}?view=steps&step=each`);
  await says(page, 'Waiting');
  await shows(page, 'each', 'WAITING');
  await page.getByLabel('What it waits for').getByText('each[1]').waitFor();
  await page.getByRole('button', { name: 'Reject each[1]' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Reject' }).click();
  await page.locator('[data-item="1"][data-state="FAILED"]').waitFor();
  const query = 'query($id: ID!) { execution(executionId: $id) { state step(stepId: "each") { items { state } } } }';
  await until(async () => (await server.ask(query, { id: executionId })).execution.step.items[1].state === 'FAILED', 'the second item is rejected');
  await close(page);
});

test('the dialog for a retry from a step lists the steps that run again', async () => {
  const tools = [
    { id: 'done', name: 'flow.echo', parameters: { n: 1 } },
    { id: 'broken', name: 'flow.fail', parameters: { message: 'no luck' }, onError: 'continue' },
    { id: 'from', name: 'flow.echo', parameters: {}, dependsOn: 'done' },
    { id: 'last', name: 'flow.echo', parameters: {}, dependsOn: 'from' },
  ];
  const { executionId } = await server.execute(tools, 'again');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}?step=from`);
  await page.locator('.inspector').getByRole('button', { name: 'Retry from here' }).click();
  const list = page.getByRole('dialog').getByLabel('What is done again');
  await list.waitFor();
  const told = await list.locator('li').allTextContents();
  await page.getByRole('dialog').getByRole('button', { name: 'Retry' }).click();
  await page.waitForURL((url) => /\/executions\/exec_/.test(url.pathname) && !url.pathname.endsWith(executionId));
  const query = 'query($id: ID!) { execution(executionId: $id) { steps { stepId reused } } }';
  const { execution } = await server.ask(query, { id: new URL(page.url()).pathname.split('/').at(-1) });
  assert.deepEqual(told, execution.steps.filter((it) => !it.reused).map((it) => it.stepId));
  assert.ok(!told.includes('done') && told.includes('broken'), told.join());
  await close(page);
});

test('a retry repeats the failed steps, and each dialog lists the calls with effects that the retry would repeat', async () => {
  const tools = [
    { id: 'charge', name: 'flow.effect' },
    { id: 'broken', name: 'flow.fail', parameters: { message: 'no luck' }, dependsOn: 'charge' },
  ];
  const { executionId } = await server.execute(tools, 'charge and ship');
  await server.reaches(executionId, 'FAILED');
  const page = await open(server, `/executions/${executionId}`);
  const dialog = page.getByRole('dialog');
  const repeated = dialog.getByLabel('Calls that are repeated');
  const again = dialog.getByLabel('What is done again').locator('li');
  const shut = async () => {
    await dialog.getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const warns = async (action) => {
    await repeated.getByText('charge: 1 call of flow.effect').waitFor();
    await dialog.locator('button.danger', { hasText: action }).waitFor();
    assert.deepEqual(await violations(page), []);
    await shut();
  };
  await page.getByRole('button', { name: 'Run again' }).click();
  await warns('Run');
  const menu = page.getByLabel('Other ways to retry');
  await menu.click();
  await page.getByRole('button', { name: 'Everything…' }).click();
  assert.deepEqual(await again.allTextContents(), ['charge', 'broken']);
  await warns('Retry');
  await menu.click();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'From a step…' }).waitFor({ state: 'hidden' });
  await menu.click();
  await page.getByRole('button', { name: 'From a step…' }).click();
  const step = dialog.getByLabel('Step to begin with');
  assert.equal(await step.inputValue(), 'broken');
  await until(() => dialog.locator('button.primary:enabled', { hasText: 'Retry' }).isVisible(), 'the dialog lists no repeated call and allows the retry');
  await step.selectOption('charge');
  await warns('Retry');
  await page.goto(`${server.url}/executions/${executionId}?step=charge`);
  await page.locator('.inspector').getByRole('button', { name: 'Retry from here' }).click();
  await warns('Retry');
  await page.getByRole('button', { name: 'Retry failed steps' }).click();
  await dialog.locator('button.primary:enabled', { hasText: 'Retry' }).waitFor();
  assert.equal(await repeated.count(), 0);
  assert.deepEqual(await again.allTextContents(), ['broken']);
  await dialog.getByRole('button', { name: 'Retry' }).click();
  await page.waitForURL((url) => /\/executions\/exec_/.test(url.pathname) && !url.pathname.endsWith(executionId));
  const retry = new URL(page.url()).pathname.split('/').at(-1);
  await server.reaches(retry, 'FAILED');
  const query = 'query($id: ID!) { execution(executionId: $id) { steps { stepId reused } } }';
  const { execution } = await server.ask(query, { id: retry });
  assert.deepEqual(execution.steps, [{ stepId: 'charge', reused: true }, { stepId: 'broken', reused: false }]);
  await page.getByText(`retry of ${executionId}`).click();
  await page.getByLabel('What goes on after it').getByRole('link', { name: retry }).click();
  await page.waitForURL(`**/executions/${retry}`);
  await close(page);
});

test('before a plan runs again, a dialog lists the calls with effects that it would repeat', async () => {
  const tools = [
    { id: 'charge', name: 'flow.effect' },
    { id: 'broken', name: 'flow.fail', parameters: { message: 'no luck' }, dependsOn: 'charge' },
  ];
  const { executionId, requestId } = await server.execute(tools, 'charge by the plan');
  await server.reaches(executionId, 'FAILED');
  const count = async () => (await server.ask('query($id: ID!) { executions(filter: { requestId: $id }) { nodes { executionId } } }', { id: requestId })).executions.nodes.length;
  const page = await open(server, `/executions/${executionId}`);
  await page.getByLabel('What failed').getByRole('link', { name: 'Edit plan' }).click();
  await page.waitForURL('**/plans/plan_*');
  const dialog = page.getByRole('dialog');
  const repeated = dialog.getByLabel('Calls that are repeated');
  const run = page.getByRole('button', { name: 'Run', exact: true });
  const warns = async (action) => {
    await repeated.getByText('charge: 1 call of flow.effect').waitFor();
    await repeated.getByRole('link', { name: executionId }).waitFor();
    await dialog.locator('button.danger', { hasText: action }).waitFor();
    assert.deepEqual(await violations(page), []);
    await dialog.getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  await run.click();
  await warns('Run');
  await page.getByRole('button', { name: 'Run with options…' }).click();
  await warns('Run it');
  // The next version of the plan has some calls of the previous version, and would repeat them.
  const text = page.getByLabel('The plan as JSON');
  const draft = JSON.parse(await text.inputValue());
  await text.fill(JSON.stringify({ ...draft, tools: [draft.tools[0], { id: 'mended', name: 'flow.echo', parameters: {}, dependsOn: 'charge' }] }));
  await page.getByText('Plan is valid.').waitFor();
  await run.click();
  await warns('Run');
  assert.equal(await count(), 1);
  // A dry run calls no tool. Afterwards, the page still warns about the calls of the real run.
  await page.getByLabel('Dry run').check();
  await run.click();
  await page.waitForURL(/\/executions\/exec_/);
  await says(page, 'Completed');
  await page.getByRole('link', { name: /^plan, version 2/ }).click();
  await run.click();
  await repeated.getByText('charge: 1 call of flow.effect').waitFor();
  await dialog.getByRole('button', { name: 'Run' }).click();
  await page.waitForURL(/\/executions\/exec_/);
  await says(page, 'Completed');
  assert.equal(await count(), 3);
  await close(page);
});

test('one click runs a plan without effects again', async () => {
  const { executionId } = await server.execute([{ id: 'look', name: 'flow.noop' }], 'look again');
  await server.reaches(executionId, 'COMPLETED');
  const page = await open(server, `/executions/${executionId}`);
  await page.getByRole('link', { name: /^plan, version 1/ }).click();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.waitForURL((url) => /\/executions\/exec_/.test(url.pathname) && !url.pathname.endsWith(executionId));
  await says(page, 'Completed');
  await close(page);
});

test('the dialog for another attempt of a step warns that its call has an effect', async () => {
  const tools = [{ id: 'pay', name: 'pay', onError: 'wait' }];
  const own = await Server.start({
    config: { toolsets: [{ name: 'shop', source: { tools: [{ name: 'pay', description: 'Pays', parameters: { type: 'object' }, effect: 'once', run: { command: ['false'] } }] } }] },
  });
  const { executionId } = await own.execute(tools, 'pay');
  await own.reaches(executionId, 'WAITING');
  const page = await open(own, `/executions/${executionId}?step=pay`);
  await page.locator('.inspector').getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('dialog').getByLabel('Calls that are repeated').getByText('shop.pay has an effect, and is called again.').waitFor();
  await close(page);
  await own.stop();
});

test('after a dialog or a panel is closed, the element that opened it has the focus again', async () => {
  const { executionId } = await server.execute(ASKS, 'focus');
  const page = await open(server, `/executions/${executionId}?view=steps`);
  await shows(page, 'ask', 'WAITING');
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  await page.getByRole('button', { name: 'Cancel' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await until(async () => (await focused()) === 'Cancel', 'the button `Cancel` has the focus again');
  await page.locator('[data-step="ask"] button').focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Close the step' }).focus();
  await page.keyboard.press('Escape');
  await page.locator('.inspector').waitFor({ state: 'detached' });
  await until(() => page.evaluate(() => document.activeElement.closest('[data-step="ask"]') !== null), 'the row of the step has the focus again');
  await close(page);
});

test('a button is disabled while its request runs, so that the request is sent once', async () => {
  const { executionId } = await server.execute([{ id: 'wait', name: 'flow.wait', parameters: { name: 'never' } }], 'slow');
  const page = await open(server, `/executions/${executionId}`);
  await says(page, 'Waiting');
  let asked = 0;
  let go;
  const gate = new Promise((resolve) => (go = resolve));
  await page.route('**/graphql', async (route) => {
    if (route.request().postData()?.includes('pauseExecution')) {
      asked += 1;
      await gate;
    }
    await route.continue();
  });
  const pause = page.getByRole('button', { name: 'Pause' });
  await pause.click();
  await until(() => pause.isDisabled(), 'the button is disabled');
  await pause.click({ force: true });
  go();
  await says(page, 'Paused');
  assert.equal(asked, 1);
  await close(page);
});

test('on a phone, the Back button closes the panel that covers the page', async () => {
  const { executionId, requestId } = await server.execute(ASKS, 'phone');
  const page = await open(server, `/requests/${requestId}`, { viewport: { width: 375, height: 700 }, hasTouch: true });
  await page.locator('.row-link').click();
  await page.waitForURL(`**/executions/${executionId}`);
  await page.getByRole('tab', { name: 'Steps' }).click();
  await page.locator('[data-step="ask"] button').click();
  await page.locator('.inspector').waitFor();
  await page.goBack();
  await page.locator('.inspector').waitFor({ state: 'detached' });
  assert.ok(page.url().includes(executionId));
  await page.locator('[data-step="ask"] button').click();
  await page.getByRole('button', { name: 'Close the step' }).click();
  await page.locator('.inspector').waitFor({ state: 'detached' });
  await page.goBack();
  await page.waitForURL(`**/requests/${requestId}`);
  await close(page);
});

test('the user plans a query, changes the plan, saves it and runs it', async () => {
  const page = await open(server, '/new');
  await page.getByLabel('What should be done?').fill('Create author Alice with email alice@web.test, then create blog by Alice titled Hello about world');
  await page.getByRole('button', { name: 'Create plan' }).click();
  await page.locator('canvas[data-nodes="2"]').waitFor();
  const text = page.getByLabel('The plan as JSON');
  const draft = JSON.parse(await text.inputValue());
  assert.deepEqual(draft.tools.map((it) => it.id), ['createAuthor', 'createBlog']);
  await text.fill(JSON.stringify({ ...draft, tools: [{ ...draft.tools[0], name: 'blog.createAuthr' }, draft.tools[1]] }, null, 2));
  await page.getByLabel('Diagnostics').getByText('plan.unknown_tool').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled());
  await page.getByRole('button', { name: /tools\[0\]/ }).first().click();
  const selected = await text.evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd));
  assert.equal(selected, '"blog.createAuthr"');
  draft.tools[1].parameters.title = 'Bonjour';
  await text.fill(JSON.stringify(draft, null, 2));
  await page.getByText('Plan is valid.').waitFor();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.waitForURL(/\/executions\/exec_/);
  await says(page, 'Completed');
  await page.getByRole('tab', { name: 'Results' }).click();
  await page.locator('.json', { hasText: 'Bonjour' }).waitFor();
  await page.getByRole('link', { name: /^req_/ }).click();
  await page.getByRole('tab', { name: 'Versions (2)' }).click();
  await page.locator('.line-new', { hasText: 'Bonjour' }).waitFor();
  await page.getByRole('tab', { name: 'How the plan was made' }).click();
  await page.getByRole('heading', { name: /Candidates/ }).first().waitFor();
  await close(page);
});

test('the user adds a step, edits it in a form and removes it', async () => {
  const page = await open(server, '/new');
  await page.getByRole('button', { name: 'write the plan as JSON' }).click();
  await page.locator('canvas[data-nodes="2"]').waitFor();
  await addStep(page, 'flow.sleep');
  const form = page.getByRole('region', { name: 'Step flow.sleep' });
  await form.getByLabel(/^ms/).fill('5');
  await form.getByLabel('When').fill('steps["hello"].ok');
  await form.getByLabel('A person must approve').check();
  const draft = async () => JSON.parse(await page.getByLabel('The plan as JSON').inputValue());
  const expected = { id: 'flow.sleep', name: 'flow.sleep', parameters: { ms: 5 }, when: 'steps["hello"].ok', requiresApproval: true };
  assert.deepEqual((await draft()).tools[2], expected);
  await page.locator('canvas[data-nodes="3"]').waitFor();
  await page.getByText('Plan is valid.').waitFor();
  await form.getByRole('button', { name: 'Remove' }).click();
  assert.equal((await draft()).tools.length, 2);
  await page.locator('canvas[data-nodes="2"]').waitFor();
  await page.getByRole('application').focus();
  await page.keyboard.press('ArrowDown');
  await page.getByRole('region', { name: 'Step hello' }).getByLabel('Parameters').waitFor();
  await close(page);
});

test('the page of the tools reports that no tool fits a query and that no tools collide', async () => {
  const page = await open(server, '/tools?view=selection&query=qqzxv&by=LEXICAL');
  await page.getByRole('heading', { name: 'No tool fits' }).waitFor();
  await page.goto(`${server.url}/tools?view=collisions&threshold=1`);
  await page.getByRole('heading', { name: 'No two tools collide' }).waitFor();
  await page.getByText('0 tool pairs with similar examples').waitFor();
  await page.goto(`${server.url}/tools?view=collisions&threshold=nonsense`);
  await page.getByText('Similar by at least 0.00').waitFor();
  await close(page);
});

test('at an earlier position of the log, the page hides what the execution waits for at present', async () => {
  const { executionId } = await server.execute(ASKS, 'then and now');
  const page = await open(server, `/executions/${executionId}?view=results`);
  await page.getByLabel('What it waits for').waitFor();
  await page.getByLabel('Moment of the log').focus();
  await page.keyboard.press('Home');
  await page.getByLabel('What it waits for').waitFor({ state: 'detached' });
  await page.getByText('Results are shown as they are now').waitFor();
  await close(page);
});

test('the user switches a toolset off and on, and calls a tool with its form', async () => {
  const page = await open(server, '/tools');
  const toggle = page.getByRole('switch', { name: 'Toolset blog' });
  await toggle.waitFor();
  assert.equal(await toggle.getAttribute('aria-checked'), 'true');
  await toggle.click();
  await page.locator('[role="switch"][aria-label="Toolset blog"][aria-checked="false"]').waitFor();
  await toggle.click();
  await page.locator('[role="switch"][aria-label="Toolset blog"][aria-checked="true"]').waitFor();
  await page.locator('a.tool-row', { hasText: 'createAuthor' }).first().click();
  await page.getByLabel(/^name/).fill('Bob');
  await page.getByLabel(/^email/).fill('bob@web.test');
  await page.getByRole('button', { name: 'Call tool' }).click();
  await page.locator('.try-result .text-good').waitFor();
  await page.locator('.try-result .json', { hasText: 'bob@web.test' }).waitFor();
  await page.getByRole('tab', { name: 'Selection' }).click();
  await page.getByLabel('Query').fill('write an article');
  await page.locator('table .score').first().waitFor();
  await close(page);
});
