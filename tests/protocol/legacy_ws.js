// The older WebSocket subprotocol `graphql-ws`, with the package `subscriptions-transport-ws`, which uses it.
'use strict';

const { address, assert, checks, load, open } = require('./client.js');

function collect(observable) {
  return new Promise((resolve, reject) => {
    const items = [];
    observable.subscribe({ next: (item) => items.push(item), error: reject, complete: () => resolve(items) });
  });
}

checks({
  'the package subscriptions-transport-ws works': async () => {
    const { SubscriptionClient } = load('subscriptions-transport-ws');
    const options = { reconnect: false, connectionParams: { token: 'secret' } };
    const client = new SubscriptionClient(`ws://${address}/graphql`, options, load('ws'));
    const ticks = await collect(client.request({ query: 'subscription { ticks(count: 50) }' }));
    assert.deepEqual(ticks.map((tick) => tick.data.ticks), Array.from({ length: 50 }, (_, n) => `${n + 1}`));
    assert.deepEqual(await collect(client.request({ query: '{ hello init }' })), [
      { data: { hello: 'Hello world', init: 'secret' } },
    ]);
    await assert.rejects(collect(client.request({ query: '{ nope }' })));
    client.close();
  },
  'raw messages get the right answers': async () => {
    const { say, hear } = open('graphql-ws');
    await say({ type: 'connection_init', payload: null });
    assert.deepEqual(await hear(), { type: 'connection_ack' });
    assert.deepEqual(await hear(), { type: 'ka' });
    await say({ id: '1', type: 'start', payload: { query: 'subscription { forever }' } });
    await say({ id: '1', type: 'stop' });
    await say({ id: '1', type: 'start', payload: { query: '{ hello }' } });
    assert.deepEqual(await hear(), { id: '1', type: 'data', payload: { data: { hello: 'Hello world' } } });
    assert.deepEqual(await hear(), { id: '1', type: 'complete' });
    await say({ type: 'connection_terminate' });
    assert.equal((await hear()).code, 1000);
  },
});
