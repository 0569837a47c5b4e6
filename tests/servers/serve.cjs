// Serves a few authors and books with npm's json-graphql-server or json-server.
//
//   node serve.cjs graphql|rest NODE_MODULES
//
// Prints its port, and ends when its standard input closes.

const { createRequire } = require('node:module');
const path = require('node:path');

const [kind, modules] = process.argv.slice(2);
const from = createRequire(path.join(modules, 'index.js'));
const data = {
  authors: [{ id: 1, name: 'Ada' }],
  books: [{ id: 1, title: 'Notes', author_id: 1 }],
};

function app() {
  if (kind === 'graphql') {
    const express = from('express')();
    express.use('/', from('json-graphql-server/node').jsonGraphqlExpress(data));
    return express;
  }
  const server = from('json-server');
  const rest = server.create();
  rest.use(server.bodyParser);
  rest.use(server.router(data));
  return rest;
}

const server = app().listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0)).resume();
