//: run node @FILE@ @TMP@/app.sock @THREADS@
//: package nodejs
//: version --version
// An application that takes every request at once, and waits for one of a few connections of its database:
// /work?sleep=20ms keeps one for that long. Who comes first is first.
const http = require("http"), fs = require("fs");
const [path, connections] = [process.argv[2], Number(process.argv[3])];
let free = connections;
const waiting = [];

function take(use) {
  if (free > 0) { free -= 1; use(); } else waiting.push(use);
}

function release() {
  const next = waiting.shift();
  if (next) next(); else free += 1;
}

http.createServer((request, response) => {
  const wait = Number(/[?&]sleep=(\d+)ms/.exec(request.url)?.[1] ?? 0);
  take(() => setTimeout(() => {
    response.writeHead(200, { "Content-Length": 0 });
    response.end();
    release();
  }, wait));
}).listen({ path, backlog: 511 }, () => fs.chmodSync(path, 0o666));
