// The audit of the GraphQL over HTTP specification. Every check of it must pass without a warning or a notice.
'use strict';

const { address, assert, checks, load } = require('./client.js');

checks({
  'all audits pass': async () => {
    const { auditServer } = load('graphql-http');
    const results = await auditServer({ url: `http://${address}/graphql` });
    const unhappy = results.filter((result) => result.status !== 'ok');
    assert.deepEqual(unhappy.map(({ id, name, status, reason }) => ({ id, name, status, reason })), []);
    assert.equal(results.length, 61);
  },
});
