// An application in Node, without packages, as tests put it behind servers. Prints its port when it listens.
//
//   node application.js NAME ADDRESS PORT
//
// What it does is decided by the last part of the path; everything else tells what it was told, a line each.
'use strict';
const http = require('http');
const crypto = require('crypto');
const [, , name, address, port] = process.argv;

// Of the fields of a request those of clients, and those in which a server in front says who asks.
const TOLD = ['host', 'cookie', 'authorization', 'accept', 'accept-encoding', 'content-type', 'range', 'if-none-match',
  'origin', 'referer', 'user-agent', 'remote-user', 'x-custom', 'x_custom', 'te', 'upgrade', 'proxy', 'keep-alive'];
const IN_FRONT = ['x-real-ip', 'x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-prefix'];

const streams = new Map(); // key: what sends the next event, or undefined until the stream has come

const text = (answer, status, body, fields = {}) => {
  const length = status === 304 ? {} : { 'Content-Length': Buffer.byteLength(body) };
  answer.writeHead(status, { 'Content-Type': 'text/plain', 'X-App': name, ...length, ...fields });
  answer.end(body);
};

const tell = (request, answer, names = TOLD) => {
  const hash = crypto.createHash('sha256');
  let bytes = 0;
  request.on('data', piece => { bytes += piece.length; hash.update(piece); });
  request.on('end', () => {
    const fields = names.filter(it => it in request.headers).map(it => `${it}: ${request.headers[it]}\n`);
    const body = bytes === 0 ? '' : `body: ${bytes} bytes, ${hash.digest('hex').slice(0, 16)}\n`;
    text(answer, 200, `${request.method} ${request.url}\n${fields.join('')}${body}`);
  });
};

const events = (request, answer, key) => {
  answer.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache', 'X-App': name });
  let count = 0;
  const next = () => {
    answer.write(`id: ${++count}\ndata: event ${count}\n\n`);
    if (count === 3) answer.end();
  };
  streams.set(key, next);
  request.on('close', () => streams.set(key, null));
  next();
};

const does = {
  'told': (request, answer) => tell(request, answer, [...TOLD, ...IN_FRONT]),
  'events': (request, answer, url) => events(request, answer, url.searchParams.get('key')),
  // has a stream send its next event
  'next': (request, answer, url) => {
    const next = streams.get(url.searchParams.get('key'));
    if (next) next();
    text(answer, 200, next ? 'sent' : next === null ? 'closed' : 'none');
  },
  'moved': (request, answer, url) => {
    text(answer, 302, '', { Location: url.searchParams.get('to') || `http://${request.headers.host}/elsewhere` });
  },
  'cookies': (request, answer) => {
    text(answer, 200, 'cookies', { 'Set-Cookie': ['a=1; Path=/; HttpOnly', 'b=2; Path=/shop; SameSite=Lax'] });
  },
  'none': (request, answer) => { answer.writeHead(204, { 'X-App': name }); answer.end(); },
  'missing': (request, answer) => text(answer, 404, `${name} has no such page`),
  'broken': (request, answer) => text(answer, 500, `${name} is broken`),
  'busy': (request, answer) => text(answer, 503, `${name} is busy`, { 'Retry-After': '7' }),
  'crash': request => request.socket.destroy(),
  'cut': (request, answer) => {
    answer.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': 100 });
    answer.write('0123456789', () => request.socket.destroy());
  },
  'tagged': (request, answer) => {
    const fields = { ETag: '"app-1"', 'Last-Modified': 'Thu, 29 Feb 2024 12:00:00 GMT', 'Cache-Control': 'max-age=60' };
    if (request.headers['if-none-match'] !== '"app-1"') return text(answer, 200, 'tagged', fields);
    answer.writeHead(304, fields);
    answer.end();
  },
  'part': (request, answer) => {
    const found = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range || '');
    if (!found) return text(answer, 200, '0123456789', { 'Accept-Ranges': 'bytes' });
    const [from, to] = [+found[1], +found[2]];
    text(answer, 206, '0123456789'.slice(from, to + 1), { 'Content-Range': `bytes ${from}-${to}/10` });
  },
  'chunks': (request, answer) => {
    answer.writeHead(200, { 'Content-Type': 'text/plain', 'X-App': name });
    for (let n = 0; n < 3; n++) answer.write(`chunk ${n}\n`);
    answer.end();
  },
  'trailers': (request, answer) => {
    // HTTP/1.0 has none
    const has = request.httpVersion === '1.1';
    answer.writeHead(200, { 'Content-Type': 'text/plain', ...(has && { 'Trailer': 'X-Sum' }) });
    answer.write('with a trailer');
    if (has) answer.addTrailers({ 'X-Sum': '42' });
    answer.end();
  },
  'hints': (request, answer) => {
    request.socket.write('HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n');
    text(answer, 200, 'with hints');
  },
  'page': (request, answer) => {
    text(answer, 200, '<p>a line that is repeated</p>\n'.repeat(200), { 'Content-Type': 'text/html; charset=utf-8' });
  },
  'big': (request, answer) => text(answer, 200, Buffer.alloc(1 << 20, '0123456789abcde\n')),
  'file': (request, answer) => text(answer, 200, 'never seen', { 'X-Accel-Redirect': '/protected/paper.txt' }),
  // a server that decides who may pass
  'verify': (request, answer) => {
    const who = (request.headers.authorization || '').replace('Bearer ', '');
    const original = request.headers['x-original-uri'] || 'nothing';
    if (who === 'ada') return text(answer, 200, '', { 'Remote-User': 'ada', 'X-Asked-For': original });
    if (who === 'eve') return text(answer, 403, `${original}: not for eve`, { 'X-Reason': 'rights' });
    if (who === 'odd') return text(answer, 500, 'the decider is broken');
    if (who === 'led') return text(answer, 302, '', { Location: 'http://login.example.com/?rd=' + original });
    text(answer, 401, `${original}: who are you?`, { 'WWW-Authenticate': 'Bearer realm="tests"' });
  },
};

const server = http.createServer((request, answer) => {
  const url = new URL(request.url, 'http://application');
  const last = url.pathname.split('/').pop();
  if (Object.hasOwn(does, last)) does[last](request, answer, url);
  else tell(request, answer);
});
server.keepAliveTimeout = 60_000;
server.listen(+port, address, () => console.log(server.address().port));
// who has started this has ended
process.stdin.on('end', () => process.exit()).resume();
