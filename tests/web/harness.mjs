// Starts a real server and a real browser, and contains the functions that all tests of the page share.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before } from 'node:test';

export function setting(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: run ./tests/run, or eval "$(./tests/run --env)"`);
  return value;
}

const load = createRequire(join(setting('FABER_TEST_WEB_MODULES'), 'x'));
const { chromium } = load('playwright-core');
const axe = load.resolve('axe-core/axe.min.js');

/** Time limit of each wait, in milliseconds. */
export const LIMIT = Number(process.env.FABER_TEST_WEB_LIMIT ?? 120_000);
/** Delay of each animation frame in milliseconds, to imitate a busy machine. */
const LATE = Number(process.env.FABER_TEST_WEB_LATE ?? 0);

/**
 * True if the tests measure times and fail for slow pages. In that case, their plans are as large as the plans in the
 * documentation.
 */
export const IS_TIMED = Boolean(process.env.FABER_TEST_WEB_TIMED);

/** A folder with a build of the page. If it is set, tests use this page and not the one in the binary. */
const DIST = process.env.FABER_TEST_WEB_DIST ?? '';

/** A `faber serve` process with its own store. After a restart, it has the same store and port. */
export class Server {
  /** At the first start, the server chooses a free port. */
  port = 0;
  #child;
  #folder = mkdtempSync(join(tmpdir(), 'faber-web-'));
  #environment;

  static async start({ config = null, environment = {} } = {}) {
    const server = new Server();
    server.#environment = environment;
    writeFileSync(join(server.#folder, 'faber.yaml'), JSON.stringify(config ?? {}));
    await server.begin();
    return server;
  }

  async begin() {
    // Between the end of the server and its restart, another process can use its port for a short time.
    const end = Date.now() + LIMIT;
    for (;;) {
      try {
        return await this.#begin();
      } catch (error) {
        if (!/in use/.test(error.message) || Date.now() > end) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  async #begin() {
    const store = `sqlite:${join(this.#folder, 'faber.db')}`;
    const config = join(this.#folder, 'faber.yaml');
    const args = ['serve', '--listen', `127.0.0.1:${this.port}`, '--store', store, '--config', config];
    const env = { ...process.env, HOME: this.#folder, XDG_DATA_HOME: this.#folder, ...this.#environment };
    this.#child = spawn(setting('FABER_TEST_BINARY'), args, { stdio: ['ignore', 'ignore', 'pipe'], env });
    const lines = createInterface(this.#child.stderr);
    const said = [];
    await new Promise((resolve, reject) => {
      lines.on('line', (line) => {
        said.push(line);
        const [, url, port] = /^listening on (http:\/\/[^ ]*:(\d+))/.exec(line) ?? [];
        if (!url) return;
        this.url = url;
        this.port = Number(port);
        resolve();
      });
      this.#child.once('exit', (code) => reject(new Error(`faber ended with ${code}: ${said.join('\n')}`)));
      setTimeout(() => reject(new Error(`faber does not listen: ${said.join('\n')}`)), LIMIT).unref();
    });
  }

  /** Kills the server without a shutdown, as a power cut would. */
  async kill() {
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await gone;
  }

  async stop() {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async ask(query, variables = {}) {
    const response = await fetch(`${this.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query, variables }),
    });
    const { data, errors } = await response.json();
    assert.equal(errors, undefined, JSON.stringify(errors));
    return data;
  }

  /** Stores a plan, and returns its id and the id of its request. */
  async plan(tools, query = 'a plan of a test') {
    const mutation = 'mutation($input: PlanInput!) { createPlan(input: $input) { plan { planId requestId } diagnostics { message } } }';
    const { createPlan } = await this.ask(mutation, { input: { query, tools } });
    assert.ok(createPlan.plan, JSON.stringify(createPlan.diagnostics));
    return createPlan.plan;
  }

  /** Stores a plan and starts an execution of it. */
  async execute(tools, query, options = {}) {
    const { planId } = await this.plan(tools, query);
    const mutation = 'mutation($id: ID!, $options: ExecutionOptions) { executePlan(planId: $id, options: $options) { executionId requestId } }';
    return (await this.ask(mutation, { id: planId, options })).executePlan;
  }

  /** Waits until an execution is in the given state. */
  async reaches(executionId, state) {
    const query = 'query($id: ID!) { execution(executionId: $id) { state } }';
    return until(async () => (await this.ask(query, { id: executionId })).execution.state === state, `${executionId} is ${state}`);
  }

  signal(executionId, name, payload = null) {
    const mutation = 'mutation($id: ID!, $name: String!, $payload: JSON) { signalExecution(executionId: $id, name: $name, payload: $payload) { seq } }';
    return this.ask(mutation, { id: executionId, name, payload });
  }
}

/** Calls `isSo` until it returns true. Fails after `LIMIT`, and names `what` was expected. */
export async function until(isSo, what) {
  const end = Date.now() + LIMIT;
  for (;;) {
    if (await isSo()) return;
    assert.ok(Date.now() < end, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

let browser;
/** The contexts of the browser, by their options. They are reused, because a page in a used context opens in half the time. */
const contexts = new Map();

/** Starts the browser once for all tests of a file. */
export function withBrowser() {
  before(async () => {
    browser = await chromium.launch({
      timeout: LIMIT,
      executablePath: setting('FABER_TEST_CHROMIUM'),
      // Chromium would not let a page from another address open a WebSocket to the server.
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', ...(DIST ? ['--disable-features=LocalNetworkAccessChecks'] : [])],
    });
  });
  after(() => browser?.close());
}

async function newContext(options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(LIMIT);
  return context;
}

/** Opens a new page. Errors, error messages in the console and dialogs are collected in `page.mistakes`. */
export async function open(server, path = '/', options = {}) {
  const key = JSON.stringify(options);
  if (!contexts.has(key)) contexts.set(key, newContext(options));
  const context = await contexts.get(key);
  const page = await context.newPage();
  page.mistakes = [];
  page.on('pageerror', (error) => page.mistakes.push(`error: ${error.stack ?? error}`));
  page.on('console', (message) => {
    // Failed requests to a killed server are not errors of the page.
    if (message.type() === 'error' && !/ERR_CONNECTION|WebSocket connection|Failed to load resource/.test(message.text())) {
      page.mistakes.push(`console: ${message.text()}`);
    }
  });
  page.on('dialog', (dialog) => {
    page.mistakes.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  if (LATE > 0) await page.addInitScript(framesComeLate, LATE);
  if (DIST) await page.route((url) => url.origin === server.url, (route) => fromDisk(route));
  await page.goto(server.url + path);
  return page;
}

/** Answers a request with a file from `DIST`. The headers of the document come from the server. */
async function fromDisk(route) {
  const path = new URL(route.request().url()).pathname;
  const file = join(DIST, path);
  if (path.startsWith('/assets/') && existsSync(file)) return route.fulfill({ path: file });
  if (route.request().resourceType() !== 'document' || path === '/graphiql') return route.fallback();
  const { headers } = await fetch(route.request().url(), { headers: { accept: 'text/html' } });
  const kept = ['content-security-policy', 'content-type'].map((name) => [name, headers.get(name)]);
  // The server completes the relative URLs of the page in the same way.
  const body = readFileSync(join(DIST, 'index.html'), 'utf8').replaceAll('"./', '"/');
  return route.fulfill({ body, headers: Object.fromEntries(kept) });
}

/** Delays animation frames in the page, so that tests fail for code that relies on frames without delay. */
function framesComeLate(late) {
  const [frame, cancel, timer] = [requestAnimationFrame, cancelAnimationFrame, setTimeout].map((it) => it.bind(window));
  const cancelled = new Set();
  window.requestAnimationFrame = (then) => {
    const id = frame(() => timer(() => cancelled.delete(id) || then(performance.now()), late));
    return id;
  };
  window.cancelAnimationFrame = (id) => {
    cancelled.add(id);
    cancel(id);
  };
  // Preact uses timers of this length as a fallback for missing frames, so they are delayed, too.
  window.setTimeout = (then, ms, ...rest) => timer(then, ms >= 30 && ms <= 110 ? ms + late : ms, ...rest);
}

/** Closes a page. Fails if the page collected errors. */
export async function close(page) {
  assert.deepEqual(page.mistakes, []);
  // Clears the local storage, because it outlives the tab.
  await page.evaluate(() => localStorage.clear());
  await page.close();
}

/** Loads another address in an open page, which takes half the time of `open`. */
export function visit(page, server, path) {
  return page.goto(server.url + path);
}

/** Switches an open page to light or dark, as the system does, without the transitions between the two. */
export async function switchTo(page, colorScheme) {
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.locator(`html[data-theme="${colorScheme}"]`).waitFor({ state: 'attached' });
}

/** Returns the violations that axe finds in the light theme and in the dark theme. */
export async function violationsInBothColours(page) {
  const found = [];
  for (const colorScheme of ['light', 'dark']) {
    await switchTo(page, colorScheme);
    found.push(...(await violations(page)).map((it) => ({ colorScheme, ...it })));
  }
  return found;
}

/** Adds a step that calls a tool to the plan in the editor. */
export async function addStep(page, tool) {
  const field = page.getByLabel('Add a step');
  await field.fill(tool);
  await page.getByRole('listbox', { name: 'Tools' }).getByRole('option').filter({ hasText: tool }).first().waitFor();
  await field.press('Enter');
}

/** Waits until a step is shown in a state, in the view `steps`. */
export function shows(page, step, state, timeout) {
  return page.locator(`[data-step="${step}"][data-state="${state}"]`).waitFor({ timeout });
}

/** Waits until the head of the page shows the state of the execution as this word. */
export function says(page, word) {
  return page.locator('.head .pill', { hasText: word }).waitFor();
}

/** Returns the violations that axe finds. In the dark theme, only the rules about colours run, because nothing else differs. */
export async function violations(page) {
  const isDark = await page.evaluate(() => matchMedia('(prefers-color-scheme: dark)').matches);
  const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  const runOnly = isDark ? { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } : { type: 'tag', values: tags };
  // The DevTools protocol loads axe, because the page's security policy forbids scripts from a text.
  const source = (await import('node:fs')).readFileSync(axe, 'utf8');
  const session = await page.context().newCDPSession(page);
  await session.send('Runtime.evaluate', { expression: source });
  const answer = await session.send('Runtime.evaluate', {
    expression: `axe.run(document, { runOnly: ${JSON.stringify(runOnly)}, resultTypes: ['violations'] })
      .then((it) => JSON.stringify(it.violations.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.slice(0, 4).map((n) => n.html + ' // ' + n.failureSummary) }))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  assert.equal(answer.exceptionDetails, undefined, JSON.stringify(answer.exceptionDetails));
  return JSON.parse(answer.result.value);
}
