// Queries and mutations over HTTP, and requests that the server refuses. The server's limit for a body is 10,000 bytes.
'use strict';

const { address, assert, checks, open, post, request } = require('./client.js');

const get = (query, headers) => request({ target: `/graphql?query=${encodeURIComponent(query)}`, headers });
const strict = { accept: 'application/graphql-response+json' };

checks({
  'queries and mutations are answered': async () => {
    const query = await post({ query: 'query($n: String) { hello(name: $n) }', variables: { n: 'you' } });
    assert.deepEqual(query.json(), { data: { hello: 'Hello you' } });
    const mutation = await post({ query: 'mutation { add(a: 1, b: 2) }' });
    assert.deepEqual(mutation.json(), { data: { add: 3 } });
    assert.deepEqual((await get('{ hello }')).json(), { data: { hello: 'Hello world' } });
  },
  'each answer has the right HTTP status': async () => {
    const mutation = await get('mutation { add(a: 1, b: 2) }');
    assert.equal(mutation.status, 405);
    assert.equal(mutation.headers.allow, 'GET, POST');
    assert.equal((await get('query A { hello } mutation B { add(a: 1, b: 2) }')).json().data, undefined);
    assert.equal((await post({ query: '{ nope }' }, strict)).status, 400);
    assert.equal((await post({ query: '{ nope }' })).status, 200);
    const partial = await post({ query: '{ refused }' }, strict);
    assert.equal(partial.status, 200);
    assert.equal(partial.json().data, null);
    assert.deepEqual(partial.json().errors[0].path, ['refused']);
    assert.equal((await post({ query: '{ hello }' }, { accept: 'text/html' })).status, 406);
    assert.equal((await post({ query: 'subscription { forever }' })).status, 406);
    assert.equal((await post([{ query: '{ hello }' }])).status, 400);
    assert.equal((await request({ method: 'DELETE' })).status, 405);
    assert.equal((await request({ target: '/nothing' })).status, 404);
  },
  'forms and other simple requests are refused': async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
      assert.equal((await post({ query: '{ hello }' }, { 'content-type': type })).status, 415, type);
    }
    const latin = await post({ query: '{ hello }' }, { 'content-type': 'application/json; charset=latin1' });
    assert.equal(latin.status, 415);
  },
  'large bodies are refused': async () => {
    const fits = JSON.stringify({ query: '{ hello }' }).padEnd(10_000);
    assert.equal((await post(fits)).status, 200);
    const large = await post(`${fits} `);
    assert.equal(large.status, 413);
    assert.equal(large.json().errors[0].extensions.code, 'LIMIT_EXCEEDED');
    const chunked = await request({
      method: 'POST',
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' },
      body: `${fits} `,
    });
    assert.equal(chunked.status, 413);
  },
  'deep documents are refused': async () => {
    const deep = await post({ query: `{ hello(name: ${'['.repeat(5_000)}` }, strict);
    assert.equal(deep.status, 400);
    assert.match(deep.json().errors[0].message, /nests deeper/);
  },
  'a panic is an internal error with a reference': async () => {
    const answer = await post({ query: '{ panic }' });
    assert.equal(answer.status, 500);
    const [error] = answer.json().errors;
    assert.equal(error.extensions.code, 'INTERNAL');
    assert.match(error.message, /reference `\S+`$/);
    assert.equal((await post({ query: '{ hello }' })).status, 200);
  },
  'a mutation continues after its client has disconnected': async () => {
    const gone = new AbortController();
    const hold = fetch(`http://${address}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: 'mutation { hold }' }),
      signal: gone.signal,
    }).catch((error) => error.name);
    assert.equal((await post({ query: 'mutation { entered }' })).status, 200);
    gone.abort();
    assert.equal(await hold, 'AbortError');
    assert.deepEqual((await post({ query: 'mutation { release }' })).json(), { data: { release: true } });
  },
  'foreign hosts are refused': async () => {
    for (const host of ['evil.example', 'localhost.evil.example', '10.0.0.1', 'evil.example:80']) {
      assert.equal((await post({ query: '{ hello }' }, { host })).status, 403, host);
      assert.equal((await request({ target: '/', headers: { host } })).status, 403, host);
      assert.deepEqual(await open('graphql-transport-ws', { headers: { host } }).hear(), { status: 403 });
    }
    for (const host of ['localhost', 'LOCALHOST:1', '127.0.0.1', '[::1]:4000']) {
      assert.equal((await post({ query: '{ hello }' }, { host })).status, 200, host);
    }
  },
  'foreign origins are refused': async () => {
    for (const origin of ['http://evil.example', 'null', 'https://localhost.evil.example', 'file://']) {
      const answer = await post({ query: '{ hello }' }, { origin });
      assert.equal(answer.status, 403, origin);
      assert.equal(answer.headers['access-control-allow-origin'], undefined);
      assert.deepEqual(await open('graphql-transport-ws', { headers: { origin } }).hear(), { status: 403 });
      const preflight = { origin, 'access-control-request-method': 'POST' };
      assert.equal((await request({ method: 'OPTIONS', headers: preflight })).status, 403);
    }
    const image = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' };
    assert.equal((await get('{ hello }', image)).status, 403);
  },
  'requests from own pages are accepted': async () => {
    const origin = 'http://localhost:3000';
    const answer = await post({ query: '{ hello }' }, { origin });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['access-control-allow-origin'], origin);
    const preflight = await request({
      method: 'OPTIONS',
      headers: { origin, 'access-control-request-method': 'POST' },
    });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers['access-control-allow-origin'], origin);
    assert.match(preflight.headers['access-control-allow-headers'], /content-type/);
  },
  'the page, health checks and metrics are served': async () => {
    assert.equal((await request({ target: '/' })).text, 'the page');
    assert.equal((await request({ target: '/health/live' })).status, 200);
    const ready = await request({ target: '/health/ready' });
    assert.equal(ready.status, 503);
    assert.deepEqual(ready.json(), { status: 'not ready', reason: 'the store is unavailable' });
    const { text } = await request({ target: '/metrics' });
    assert.match(text, /^test_figure 7\n/);
    assert.match(text, /faber_http_requests_total\{kind="query",status="200"\} \d+/);
    assert.match(text, /faber_http_requests_total\{kind="forbidden",status="403"\} \d+/);
    assert.match(text, /faber_websockets_open 0/);
  },
});
