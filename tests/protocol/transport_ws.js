// The subprotocol `graphql-transport-ws`, with the package `graphql-ws` and with invalid messages. The server allows three
// operations, messages of 10,000 bytes and three seconds for the initialisation.
'use strict';

const { address, assert, checks, load, open, request } = require('./client.js');

const INIT = { type: 'connection_init' };
const ACK = { type: 'connection_ack' };
const subscribe = (id, query) => ({ id, type: 'subscribe', payload: { query } });
const FOREVER = 'subscription { forever }';

/** Sends `messages` on a new connection, and returns the close with which the server answers. */
async function closing(...messages) {
  const { say, hear } = open('graphql-transport-ws');
  await say(...messages);
  let heard;
  do heard = await hear(); while (heard.code === undefined);
  return heard;
}

function client() {
  const { createClient } = load('graphql-ws');
  return createClient({
    url: `ws://${address}/graphql`,
    webSocketImpl: load('ws'),
    connectionParams: { token: 'secret' },
    retryAttempts: 0,
  });
}

async function collect(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

checks({
  'the package graphql-ws works': async () => {
    const all = client();
    const ticks = await collect(all.iterate({ query: 'subscription { ticks(count: 100) }' }));
    assert.deepEqual(ticks.map((tick) => tick.data.ticks), Array.from({ length: 100 }, (_, n) => `${n + 1}`));
    assert.deepEqual(await collect(all.iterate({ query: '{ hello init }' })), [
      { data: { hello: 'Hello world', init: 'secret' } },
    ]);
    assert.deepEqual(await collect(all.iterate({ query: 'mutation { add(a: 1, b: 2) }' })), [{ data: { add: 3 } }]);
    await assert.rejects(collect(all.iterate({ query: '{ nope }' })), (errors) => errors[0].message.includes('nope'));
    await assert.rejects(collect(all.iterate({ query: 'subscription { panicOnPurpose }' })), (errors) => {
      return errors[0].extensions.code === 'INTERNAL';
    });
    await all.dispose();
  },
  'each wrong message gets its close code': async () => {
    const unauthorized = { code: 4401, reason: 'Unauthorized' };
    assert.deepEqual(await closing(subscribe('1', '{ hello }')), unauthorized);
    const twice = { code: 4429, reason: 'Too many initialisation requests' };
    assert.deepEqual(await closing(INIT, INIT), twice);
    const duplicate = { code: 4409, reason: 'Subscriber for 1 already exists' };
    assert.deepEqual(await closing(INIT, subscribe('1', FOREVER), subscribe('1', FOREVER)), duplicate);
    const late = { code: 4408, reason: 'Connection initialisation timeout' };
    assert.deepEqual(await closing(), late);
    for (const wrong of ['{}', 'hello', '[]', '{"type":"start"}', '{"type":"subscribe","id":"1"}']) {
      const { code, reason } = await closing(INIT, wrong);
      assert.equal(code, 4400, wrong);
      assert.match(reason, /^Invalid message: /);
    }
    assert.equal((await closing('x'.repeat(10_001))).code, 1009);
    assert.equal((await closing('x'.repeat(100_000))).code, 1009);
  },
  'unknown subprotocols are refused': async () => {
    const unacceptable = { code: 4406, reason: 'Subprotocol not acceptable' };
    assert.deepEqual(await open('mqtt').hear(), unacceptable);
    assert.deepEqual(await open([]).hear(), unacceptable);
    const both = open(['graphql-ws', 'graphql-transport-ws']);
    await both.opened;
    assert.equal(both.socket.protocol, 'graphql-transport-ws');
    both.socket.close();
  },
  'close reasons fit into their frame': async () => {
    const id = 'é'.repeat(500);
    const { code, reason } = await closing(INIT, subscribe(id, FOREVER), subscribe(id, FOREVER));
    assert.equal(code, 4409);
    assert.equal(reason, `Subscriber for ${'é'.repeat(54)}`);
  },
  'binary messages are refused': async () => {
    const { socket, opened, hear } = open('graphql-transport-ws');
    await opened;
    socket.send(Buffer.from('{}'));
    assert.equal((await hear()).code, 4400);
  },
  'an invalid operation gets an error, and the connection stays open': async () => {
    const { socket, say, hear } = open('graphql-transport-ws');
    await say(INIT, subscribe('1', '{'), subscribe('2', '{ nope }'), subscribe('3', 'subscription { nope }'));
    assert.deepEqual(await hear(), ACK);
    const answers = [await hear(), await hear(), await hear()];
    assert.deepEqual(answers.map(({ type }) => type), ['error', 'error', 'error']);
    assert.deepEqual(answers.map(({ id }) => id).sort(), ['1', '2', '3']);
    assert(answers.every(({ payload }) => payload[0].extensions.code === 'INVALID_ARGUMENT'));
    await say(subscribe('1', '{ refused }'));
    const refused = await hear();
    assert.equal(refused.type, 'next');
    assert.equal(refused.payload.data, null);
    assert.deepEqual(await hear(), { id: '1', type: 'complete' });
    socket.close();
  },
  'a ping gets a pong': async () => {
    const { socket, say, hear } = open('graphql-transport-ws');
    await say({ type: 'ping', payload: { n: 1 } }, { type: 'ping' }, { type: 'pong' }, INIT);
    assert.deepEqual(await hear(), { type: 'pong', payload: { n: 1 } });
    assert.deepEqual(await hear(), { type: 'pong' });
    assert.deepEqual(await hear(), ACK);
    const pong = new Promise((resolve) => socket.on('pong', (data) => resolve(String(data))));
    socket.ping('frame');
    assert.equal(await pong, 'frame');
    socket.close();
  },
  '`complete` stops an operation, and only running operations count for the limit': async () => {
    const { socket, say, hear } = open('graphql-transport-ws');
    await say(INIT, subscribe('1', FOREVER), subscribe('2', FOREVER), subscribe('3', FOREVER), subscribe('4', FOREVER));
    assert.deepEqual(await hear(), ACK);
    const refused = await hear();
    assert.equal(refused.id, '4');
    assert.equal(refused.payload[0].extensions.code, 'LIMIT_EXCEEDED');
    const { text } = await request({ target: '/metrics' });
    assert.match(text, /faber_websockets_open [1-9]/);
    assert.match(text, /faber_subscriptions_running 3/);
    await say({ id: '1', type: 'complete' }, subscribe('1', 'subscription { ticks(count: 1) }'));
    assert.deepEqual(await hear(), { id: '1', type: 'next', payload: { data: { ticks: '1' } } });
    assert.deepEqual(await hear(), { id: '1', type: 'complete' });
    socket.close();
  },
  'a slow client loses no answer, and the server still serves other clients': async () => {
    const { socket, say, hear } = open('graphql-transport-ws');
    await say(INIT);
    assert.deepEqual(await hear(), ACK);
    socket.pause();
    await say(subscribe('1', 'subscription { ticks(count: 2000, size: 20000) }'));
    // 40 MB do not fit into the buffers, so the server cannot send the whole answer yet. It must still serve other clients.
    const others = await collect(client().iterate({ query: 'subscription { ticks(count: 3) }' }));
    assert.equal(others.length, 3);
    socket.resume();
    for (let n = 1; n <= 2000; n += 1) {
      const { type, payload } = await hear();
      assert.equal(type, 'next');
      assert.equal(payload.data.ticks.replace(/x+$/, ''), `${n}`);
    }
    assert.deepEqual(await hear(), { id: '1', type: 'complete' });
    socket.close();
  },
});
