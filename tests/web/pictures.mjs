// Renews the pictures of docs/reference/web.md: `eval "$(./tests/run --env)"; node tests/web/pictures.mjs`, with FABER_TEST_BINARY.
// The pictures show a real server, its demo tools, and an execution that waits for a person.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Server, close, open, withBrowser } from './harness.mjs';

const images = process.env.FABER_PICTURES ?? fileURLToPath(new URL('../../docs/images', import.meta.url));
const OPTIONS = { viewport: { width: 1280, height: 760 }, colorScheme: 'light', reducedMotion: 'reduce' };

const chapter = {
  tools: [
    { id: 'outline', name: 'flow.echo', parameters: { heading: '{{input.heading}}' } },
    { id: 'draft', name: 'flow.sleep', parameters: { ms: 420 }, dependsOn: ['outline'] },
    { id: 'proofread', name: 'flow.sleep', parameters: { ms: 260 }, dependsOn: ['draft'] },
    { id: 'illustrate', name: 'flow.sleep', parameters: { ms: 340 }, dependsOn: ['outline'] },
    { id: 'typeset', name: 'flow.echo', parameters: { heading: '{{outline.heading}}' }, dependsOn: ['proofread', 'illustrate'] },
  ],
};

const PLAN = [
  { id: 'createAuthor', name: 'createAuthor', parameters: { name: 'Alice', email: 'alice@example.com' } },
  { id: 'topics', name: 'flow.echo', parameters: { list: ['Salt', 'Tides', 'Light', 'Wind', 'Sand', 'Birds'] } },
  { id: 'createBlog', name: 'createBlog', parameters: { authorId: '{{createAuthor._id}}', title: 'The sea', content: 'In six parts' } },
  { id: 'research', name: 'flow.sleep', parameters: { ms: 300 }, forEach: '{{topics.list}}', maxParallel: 3 },
  { id: 'chapters', inlinePlan: chapter, parameters: { heading: 'Salt' }, dependsOn: ['research'] },
  { id: 'cover', name: 'flow.fail', parameters: { message: 'the printer is out of blue', retryable: true, times: 1 }, retry: { maxAttempts: 3, backoffMs: 300 }, dependsOn: ['createBlog'] },
  { id: 'review', name: 'flow.echo', parameters: { blog: '{{createBlog._id}}' }, requiresApproval: true, dependsOn: ['chapters', 'cover'] },
  { id: 'listBlogs', name: 'listBlogs', parameters: {}, dependsOn: ['review'] },
];

const server = await Server.start();
after(() => server.stop());
withBrowser();

test('the pictures of the documentation are renewed', async () => {
  mkdirSync(images, { recursive: true });
  const shoot = async (name, path, ready, options = {}) => {
    const page = await open(server, path, { ...OPTIONS, ...options });
    await ready(page);
    await page.waitForLoadState('networkidle');
    await page.screenshot({ path: join(images, `${name}.png`) });
    await close(page);
  };
  for (const [query, state, tools] of [
    ['Count the readers of last week', 'COMPLETED', [{ name: 'listBlogs', parameters: {} }]],
    ['Create author Bob with email bob@example.com', 'COMPLETED', [{ name: 'createAuthor', parameters: { name: 'Bob', email: 'bob@example.com' } }]],
    ['Tell everybody about the new chapter', 'FAILED', [{ id: 'tell', name: 'flow.fail', parameters: { message: 'the mail server is away' } }]],
    ['Take the old chapters off the page', 'WAITING', [{ name: 'listBlogs', parameters: {} }, { id: 'sure', name: 'flow.noop', parameters: {}, requiresApproval: true, dependsOn: ['listBlogs'] }]],
    ['Print a hundred copies as soon as the paper is there', 'WAITING', [{ id: 'paper', name: 'flow.wait', parameters: { name: 'paper' } }]],
  ]) {
    const { executionId } = await server.execute(tools, query);
    await server.reaches(executionId, state);
  }
  await shoot('overview', '/', (page) => page.locator('.cause').first().waitFor());
  await shoot('requests', '/requests', (page) => page.locator('.list-row').nth(3).waitFor());
  const { executionId } = await server.execute(PLAN, 'Write a blog about the sea in six parts, and let me read it before it is listed');
  await server.reaches(executionId, 'WAITING');
  await shoot('timeline', `/executions/${executionId}?view=timeline`, (page) => page.locator('.virtual [role=listitem]').first().waitFor());
  await shoot('execution', `/executions/${executionId}?step=review`, (page) => page.locator('.inspector .primary').waitFor());
  await shoot('inside', `/executions/${executionId}?open=research,chapters&step=chapters/draft`, (page) => page.locator('canvas[data-open="2"]').waitFor(), { colorScheme: 'dark' });
});
