// Shutdown of the server while clients have a WebSocket and an event stream open.
'use strict';

const { address, assert, checks, open, request } = require('./client.js');

checks({
  'a shutdown ends subscriptions': async () => {
    const { say, hear } = open('graphql-transport-ws');
    await say({ type: 'connection_init' });
    assert.deepEqual(await hear(), { type: 'connection_ack' });
    await say({ id: '1', type: 'subscribe', payload: { query: 'subscription { forever }' } }, { type: 'ping' });
    assert.deepEqual(await hear(), { type: 'pong' });
    const query = encodeURIComponent('subscription { forever }');
    const stream = await fetch(`http://${address}/graphql?query=${query}`, {
      headers: { accept: 'text/event-stream' },
    });
    console.log('shut down');
    assert.deepEqual(await hear(), { code: 1001, reason: 'Going away' });
    assert.equal(await stream.text(), ':\n\n', 'the stream ends without `complete`, so that the client reconnects');
    await assert.rejects(request({ target: '/health/live' }));
  },
});
