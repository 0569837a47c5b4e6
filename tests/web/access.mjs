// Roles: the page shows who uses it, and disables the controls that the role does not permit, with the reason.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Server, close, open, violations, violationsInBothColours, visit, withBrowser } from './harness.mjs';

const SECRETS = { VERA: 'a-long-secret-of-vera', OLAF: 'a-long-secret-of-olaf', ADA: 'a-long-secret-of-ada' };
const TOKENS = [
  ['vera', 'VERA', 'viewer'],
  ['olaf', 'OLAF', 'operator'],
  ['ada', 'ADA', 'admin'],
].map(([name, token_env, role]) => ({ name, token_env, role }));

let server;
let waiting;
let failed;
withBrowser();
before(async () => {
  server = await Server.start({ config: { access: { tokens: TOKENS } }, environment: SECRETS });
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${SECRETS.ADA}` };
  server.ask = async (query, variables) => {
    const { data, errors } = await (await fetch(`${server.url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query, variables }) })).json();
    assert.equal(errors, undefined, JSON.stringify(errors));
    return data;
  };
  waiting = (await server.execute([{ id: 'refund', name: 'flow.noop', requiresApproval: true }], 'needs approval')).executionId;
  failed = (await server.execute([{ id: 'export', name: 'flow.fail', parameters: { message: 'no' } }], 'has failed')).executionId;
  await server.reaches(waiting, 'WAITING');
  await server.reaches(failed, 'FAILED');
});
after(() => server?.stop());

async function signIn(secret, path, options) {
  const page = await open(server, path, options);
  await page.getByLabel('Access token').fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByLabel('Access token').waitFor({ state: 'detached' });
  return page;
}

/** Returns whether the button is disabled, and checks that it then has the reason. */
async function isDisabled(button, reason) {
  await button.first().waitFor();
  const disabled = await button.first().isDisabled();
  if (disabled) assert.equal(await button.first().getAttribute('title'), reason);
  return disabled;
}

test('a viewer sees everything, and the buttons are disabled with the reason', async () => {
  const page = await signIn(SECRETS.VERA, `/executions/${waiting}?step=refund`);
  await page.locator('.who').getByText('vera').waitFor();
  const reason = 'This needs the role operator. Your role is viewer.';
  for (const name of [/^Approve/, /^Reject/, /^Pause/, /^Cancel/, /^Signal/]) assert.ok(await isDisabled(page.getByRole('button', { name }), reason), String(name));
  assert.deepEqual(await violationsInBothColours(page), []);
  await visit(page, server, '/approvals');
  await page.locator('.approval .call').waitFor();
  for (const name of [/^Approve/, /^Reject/]) assert.ok(await isDisabled(page.getByRole('button', { name }), reason), String(name));
  await visit(page, server, `/executions/${failed}`);
  for (const name of [/^Retry failed steps/, /^Run again/]) assert.ok(await isDisabled(page.getByRole('button', { name }), reason), String(name));
  await visit(page, server, '/');
  assert.ok(await isDisabled(page.getByRole('button', { name: /^Retry all/ }), 'This needs the role admin. Your role is viewer.'));
  await visit(page, server, '/tools/flow.echo');
  assert.ok(await isDisabled(page.getByRole('button', { name: /^Call tool/ }), reason));
  assert.deepEqual(await violations(page), []);
  await close(page);
});

test('an operator approves, and may not change many executions', async () => {
  const page = await signIn(SECRETS.OLAF, '/', { viewport: { width: 390, height: 844 }, hasTouch: true });
  await page.locator('.who').getByText('operator', { exact: true }).waitFor();
  assert.ok(await isDisabled(page.getByRole('button', { name: /^Retry all/ }), 'This needs the role admin. Your role is operator.'));
  assert.deepEqual(await violations(page), []);
  await visit(page, server, '/approvals');
  await page.getByRole('button', { name: 'Approve' }).click();
  await server.reaches(waiting, 'COMPLETED');
  await close(page);
});

test('an admin may do everything, and signs out', async () => {
  const page = await signIn(SECRETS.ADA, '/');
  await page.locator('.who').getByText('ada').waitFor();
  assert.ok(!(await isDisabled(page.getByRole('button', { name: /^Retry all/ }))));
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Access token').waitFor();
  await close(page);
});
