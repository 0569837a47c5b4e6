// Operations as server-sent events, with the package `graphql-sse` and with requests without a package.
'use strict';

const { address, assert, checks, load, post, request } = require('./client.js');

const accept = 'text/event-stream';
const get = (query) => request({ target: `/graphql?query=${encodeURIComponent(query)}`, headers: { accept } });

async function collect(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

checks({
  'the package graphql-sse works': async () => {
    const { createClient } = load('graphql-sse');
    const client = createClient({ url: `http://${address}/graphql`, retryAttempts: 0 });
    const ticks = await collect(client.iterate({ query: 'subscription { ticks(count: 50) }' }));
    assert.deepEqual(ticks.map((tick) => tick.data.ticks), Array.from({ length: 50 }, (_, n) => `${n + 1}`));
    assert.deepEqual(await collect(client.iterate({ query: '{ hello }' })), [{ data: { hello: 'Hello world' } }]);
    const [wrong] = await collect(client.iterate({ query: '{ nope }' }));
    assert.match(wrong.errors[0].message, /nope/);
    client.dispose();
  },
  'the bytes of the event stream are correct': async () => {
    const answer = await get('subscription { ticks(count: 2) }');
    assert.equal(answer.status, 200);
    assert.match(answer.headers['content-type'], /^text\/event-stream/);
    assert.equal(
      answer.text,
      ':\n\nevent: next\ndata: {"data":{"ticks":"1"}}\n\nevent: next\ndata: {"data":{"ticks":"2"}}\n\nevent: complete\ndata:\n\n',
    );
  },
  'an error of an operation is an event, and an invalid request gets an HTTP status': async () => {
    assert.match((await get('{')).text, /^event: next\ndata: \{"errors".*\n\nevent: complete\n/);
    assert.equal((await get('mutation { add(a: 1, b: 2) }')).status, 405);
    assert.equal((await post({ quarry: 1 }, { accept })).status, 400);
    assert.match((await get('subscription { panicOnPurpose }')).text, /"INTERNAL"/);
    const either = await post({ query: 'subscription { ticks(count: 1) }' }, { accept: `application/json, ${accept}` });
    assert.match(either.headers['content-type'], /^text\/event-stream/);
  },
  'a subscription ends when its client disconnects': async () => {
    const gone = new AbortController();
    const url = `http://${address}/graphql?query=${encodeURIComponent('subscription { forever }')}`;
    const answer = await fetch(url, { headers: { accept }, signal: gone.signal });
    assert.equal(answer.status, 200);
    assert.match((await request({ target: '/metrics' })).text, /faber_subscriptions_running 1/);
    gone.abort();
    let text;
    do ({ text } = await request({ target: '/metrics' })); while (!text.includes('faber_subscriptions_running 0'));
  },
});
