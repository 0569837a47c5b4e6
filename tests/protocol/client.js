// Code that all scripts use: the packages that `tests/run` installed, the server's address, and helpers for requests.
'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const { createRequire } = require('node:module');
const path = require('node:path');

const modules = process.env.FABER_TEST_NODE_MODULES;
assert(modules, 'FABER_TEST_NODE_MODULES is not set: run ./tests/run');
const load = createRequire(path.join(modules, 'anchor.js'));
const address = process.argv[2];

/** Sends a request with exactly these headers. They can be invalid, for example a wrong `Host`. */
function request({ method = 'GET', target = '/graphql', headers = {}, body }) {
  return new Promise((resolve, reject) => {
    const [host, port] = address.split(':');
    const sent = http.request({ host, port, method, path: target, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => (text += chunk));
      response.on('end', () => {
        const { statusCode: status, headers } = response;
        resolve({ status, headers, text, json: () => JSON.parse(text) });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Sends an operation with POST. */
function post(body, headers = {}) {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return request({
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers },
    body: text,
  });
}

/** Opens a raw WebSocket. Each call of `hear` waits for the next message, or for the close. */
function open(protocols, options) {
  const WebSocket = load('ws');
  const socket = new WebSocket(`ws://${address}/graphql`, protocols, options);
  const arrived = [];
  const waiting = [];
  const arrive = (item) => (waiting.length ? waiting.shift()(item) : arrived.push(item));
  socket.on('message', (data) => arrive(JSON.parse(String(data))));
  socket.on('close', (code, reason) => arrive({ code, reason: String(reason) }));
  socket.on('unexpected-response', (_, response) => arrive({ status: response.statusCode }));
  socket.on('error', () => {});
  const opened = new Promise((resolve) => socket.on('open', resolve));
  return {
    socket,
    opened,
    say: async (...messages) => {
      await opened;
      for (const message of messages) {
        socket.send(typeof message === 'string' ? message : JSON.stringify(message));
      }
    },
    hear: () =>
      arrived.length ? Promise.resolve(arrived.shift()) : new Promise((resolve) => waiting.push(resolve)),
  };
}

/** Runs the checks one after another, and prints the name of a check that fails. */
async function checks(all) {
  const timer = setTimeout(() => {
    console.error('the checks hang');
    process.exit(1);
  }, 280_000);
  for (const [name, check] of Object.entries(all)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      console.error(`not ok ${name}\n${error.stack}`);
      process.exit(1);
    }
  }
  clearTimeout(timer);
  process.exit(0);
}

module.exports = { address, assert, checks, load, open, post, request };
