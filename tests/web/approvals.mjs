// The page of approvals: everything that waits for a person, answered in place.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, until, violations, violationsInBothColours, withBrowser } from './harness.mjs';

let server;
withBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

const REFUND = [
  { id: 'look', name: 'flow.echo', parameters: { amount: 12 } },
  { id: 'refund', name: 'flow.echo', parameters: { amount: '{{look.amount}}', to: 'alice@web.test' }, requiresApproval: true },
];

async function waiting(tools, query) {
  const { executionId } = await server.execute(tools, query);
  await server.reaches(executionId, 'WAITING');
  return executionId;
}

test('approvals show the call that would be made, and are answered in place', async () => {
  const approved = await waiting(REFUND, 'a refund to approve');
  const rejected = await waiting(REFUND, 'a refund to reject');
  const decided = await waiting([{ id: 'stock', name: 'flow.fail', parameters: { message: 'busy' }, onError: 'wait' }], 'a decision');
  const signalled = await waiting([{ id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }], 'a signal');
  const paused = await waiting([{ id: 'later', name: 'flow.wait', parameters: { name: 'x' } }], 'a pause');
  await server.ask('mutation($id: ID!) { pauseExecution(executionId: $id) { state } }', { id: paused });
  await server.reaches(paused, 'PAUSED');
  const page = await open(server, '/approvals');
  const card = (id) => page.locator(`.approval[data-id="${id}"]`);
  const badge = page.locator('.needy-count');
  await badge.getByText('5', { exact: true }).waitFor();
  await card(approved).getByLabel('The call that would be made').getByText('{"amount":12,"to":"alice@web.test"}').waitFor();
  await card(approved).getByText('flow.echo', { exact: true }).first().waitFor();
  assert.deepEqual(await violationsInBothColours(page), []);
  await card(approved).getByLabel(/^Comment on refund/).fill('ok by me');
  await card(approved).getByRole('button', { name: 'Approve' }).click();
  await card(approved).waitFor({ state: 'detached' });
  await page.getByText('refund is approved.').waitFor();
  await badge.getByText('4', { exact: true }).waitFor();
  await server.reaches(approved, 'COMPLETED');
  const { execution } = await server.ask('query($id: ID!) { execution(executionId: $id) { events(first: 100) { type data } } }', { id: approved });
  assert.ok(execution.events.some(({ data }) => data.comment === 'ok by me'), JSON.stringify(execution.events));
  await card(rejected).getByRole('button', { name: 'Reject' }).click();
  await server.reaches(rejected, 'FAILED');
  await card(decided).getByRole('button', { name: 'Reject' }).click();
  await server.reaches(decided, 'FAILED');
  await card(signalled).getByRole('button', { name: 'Signal…' }).click();
  assert.equal(await page.getByRole('dialog').getByLabel('Name').inputValue(), 'paper');
  await page.getByRole('dialog').getByRole('button', { name: 'Send' }).click();
  await server.reaches(signalled, 'COMPLETED');
  await card(paused).getByRole('button', { name: 'Resume' }).click();
  await server.reaches(paused, 'WAITING');
  await card(paused).getByRole('button', { name: 'Signal…' }).waitFor();
  await server.signal(paused, 'x');
  await page.getByRole('heading', { name: 'Nothing waits for you' }).waitFor();
  await badge.waitFor({ state: 'detached' });
  await close(page);
});

test('one card has all questions of an execution, also on a phone', async () => {
  const steps = ['one', 'two'].map((id) => ({ id, name: 'flow.noop', parameters: {}, requiresApproval: true }));
  const executionId = await waiting(steps, 'two questions');
  const page = await open(server, '/approvals', { viewport: { width: 390, height: 844 }, hasTouch: true });
  const card = page.locator(`.approval[data-id="${executionId}"]`);
  await card.getByRole('group', { name: 'Step two' }).getByRole('button', { name: 'Approve' }).click();
  await card.getByRole('group', { name: 'Step two' }).waitFor({ state: 'detached' });
  assert.deepEqual(await violations(page), []);
  const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} pixels wide in a window of ${room}`);
  await card.getByRole('group', { name: 'Step one' }).getByRole('button', { name: 'Approve' }).click();
  await server.reaches(executionId, 'COMPLETED');
  await until(async () => (await card.count()) === 0, 'the card is gone');
  await close(page);
});

test('the page names the person who approved, paused and cancelled, and the reason', async (context) => {
  const config = { access: { tokens: [{ name: 'ada', token_env: 'ADA', role: 'admin' }] } };
  const guarded = await Server.start({ config, environment: { ADA: 'a-long-secret-of-ada' } });
  context.after(() => guarded.stop());
  const headers = { 'content-type': 'application/json', authorization: 'Bearer a-long-secret-of-ada' };
  guarded.ask = async (query, variables) => (await (await fetch(`${guarded.url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query, variables }) })).json()).data;
  const steps = [...REFUND, { id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }];
  const { executionId: id } = await guarded.execute(steps, 'who did it', { labels: { team: 'shop' } });
  await guarded.reaches(id, 'WAITING');
  await guarded.ask('mutation($id: ID!) { approveStep(executionId: $id, stepId: "refund", approved: true, comment: "ok by me") { state } }', { id });
  const page = await open(guarded, `/executions/${id}?step=refund`);
  await page.getByLabel('Access token').fill('a-long-secret-of-ada');
  await page.getByRole('button', { name: 'Sign in' }).click();
  const decisions = page.locator('.inspector .section', { has: page.getByRole('heading', { name: 'Decisions' }) });
  await decisions.getByText(/Approved by ada.*ok by me/).waitFor();
  const facts = page.locator('.head .facts');
  await facts.getByText(/created .* by ada/).waitFor();
  await facts.getByRole('link', { name: 'team=shop' }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.getByRole('button', { name: 'Pause' }).click();
  await facts.getByText(/Paused by ada/).waitFor();
  await guarded.ask('mutation($id: ID!) { cancelExecution(executionId: $id, reason: "wrong customer") { state } }', { id });
  await facts.getByText(/Cancelled by ada.*wrong customer/).waitFor();
  await close(page);
});
