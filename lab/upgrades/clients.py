"""Clients that a server has while its program is replaced, and what each of them has lost. SERIES=1 shows when a new
connection has waited for more than 50 ms.

`forebay load` keeps connections of HTTP/1 and HTTP/2 busy and opens a hundred new ones a second; threads here send
uploads, speak over WebSockets and read streams of events. Uploads and answers are whole or lost. A WebSocket or a stream that
ends may have been *cut*: it had outlived as many upgrades as it may. One that ends before that is lost.
"""
import atexit
import base64
import collections
import json
import os
import socket
import subprocess
import threading
import time
import zlib

PATIENCE = 20


class Lost(Exception):
    """What a client did not get."""


class Clients:
    """They come for so many `seconds`. `port` speaks HTTP/1, `http2` HTTP/2 that is known before; both have /small.txt and /app/. `control` is a server that
    is left alone: what its clients wait is the machine's doing."""

    def __init__(self, program, folder, port, http2, control, seconds, outlive=None, each=4):
        self.program, self.folder, self.port, self.outlive = program, folder, port, outlive
        self.began, self.upgrades, self.is_over, self.lock = time.monotonic(), 0, threading.Event(), threading.Lock()
        self.done, self.cut, self.lost = (collections.Counter() for _ in range(3))
        self.reasons = collections.Counter()
        url = "url=http://127.0.0.1:%d/small.txt"
        groups = ["keep-alive:connections=16,think=5ms," + url % port, "http2:connections=16,think=5ms,http=2," + url % http2,
                  "new:rate=100,per_connection=1,connections=2000,timeout=30s,connect_timeout=30s," + url % port,
                  "control:rate=100,per_connection=1,connections=2000,timeout=30s,connect_timeout=30s," + url % control]
        words = [program, "load", url[4:] % port, "--duration", f"{seconds}s", "--drain", "35s", "--interval", "100ms", "--json", f"{folder}/load.json"]
        for group in groups:
            words += ["--group", group]
        with open(f"{folder}/load.log", "w") as log:
            self.load = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        kinds = {"upload": self.upload, "WebSocket": self.websocket, "events": self.events}
        self.threads = [threading.Thread(target=self.client, args=(kind, does), daemon=True) for kind, does in kinds.items() for _ in range(each)]
        for thread in self.threads:
            thread.start()
        # whatever ends this process
        atexit.register(self.load.kill)

    def client(self, kind, does):
        while not self.is_over.is_set():
            opened = self.upgrades
            try:
                with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as stream:
                    does(stream)
                with self.lock:
                    self.done[kind] += 1
            except (OSError, Lost, ValueError) as error:
                with self.lock:
                    has_outlived = kind != "upload" and self.outlive is not None and self.upgrades - opened >= self.outlive
                    (self.cut if has_outlived else self.lost)[kind] += 1
                    if not has_outlived:
                        self.reasons[f"{kind}: {error or type(error).__name__} after {self.upgrades - opened} upgrades"] += 1
                time.sleep(0.05)

    def head(self, stream, status):
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            piece = stream.recv(1)
            if not piece:
                raise Lost("closed before an answer")
            said += piece
        if said.split()[1] != status:
            raise Lost(said.splitlines()[0].decode())
        return said

    def exactly(self, stream, count):
        got = b""
        while len(got) < count:
            piece = stream.recv(count - len(got))
            if not piece:
                raise Lost("closed")
            got += piece
        return got

    def upload(self, stream):
        """2 MB in 2 s."""
        piece = os.urandom(50_000)
        stream.sendall(b"POST /app/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\nConnection: close\r\n\r\n")
        for _ in range(40):
            stream.sendall(piece)
            time.sleep(0.05)
        self.head(stream, b"200")
        text = b""
        while more := stream.recv(4096):
            text += more
        if text.decode() != f"2000000 {zlib.crc32(piece * 40)}":
            raise Lost(f"another body: {text!r}")

    def websocket(self, stream):
        """A word and its echo, every 100 ms, for as long as the server lets it."""
        key = base64.b64encode(os.urandom(16))
        stream.sendall(b"GET /app/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                       b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
        self.head(stream, b"101")
        while not self.is_over.wait(0.1):
            word = os.urandom(20)
            stream.sendall(b"\x82\x94\0\0\0\0" + word)
            first, length = self.exactly(stream, 2)
            if first & 15 == 8:
                raise Lost("close frame")
            if self.exactly(stream, length) != word:
                raise Lost("another word")
        stream.sendall(b"\x88\x80\0\0\0\0")

    def events(self, stream):
        """Numbers, none of which may be missing, for as long as the server lets it."""
        stream.sendall(b"GET /app/events HTTP/1.0\r\nHost: a\r\n\r\n")
        self.head(stream, b"200")
        number, rest = 0, b""
        while not self.is_over.is_set():
            piece = stream.recv(4096)
            if not piece:
                raise Lost("closed")
            *whole, rest = (rest + piece).split(b"\n\n")
            for event in whole:
                if event != f"data: {number}".encode():
                    raise Lost(f"{event!r} where {number} was due")
                number += 1

    def finish(self):
        """Ends all clients. What became of them: rows of (kind, whole, lost, cut), and the longest waits in ms."""
        # a signal would end it with requests under way
        self.load.wait()
        self.is_over.set()
        for thread in self.threads:
            thread.join(60)
        with open(f"{self.folder}/load.json") as file:
            groups = {group["name"]: group for group in json.load(file)["groups"]}
        for name in ("keep-alive", "http2", "new"):
            group = groups[name]
            self.done[name], self.lost[name], self.cut[name] = group["good"], group["failed"], 0
            for reason, count in group["failures"].items():
                self.reasons[f"{name}: {reason}"] += count
        self.longest = {name: group["service"]["max_us"] / 1000 for name, group in groups.items()}
        for point in groups["new"]["series"]:
            if os.environ.get("SERIES") and (point["max_us"] or 0) > 50_000:
                print(f"at {point['at_s']:.1f} s: {point['max_us'] / 1000:.1f} ms", flush=True)
        if groups["new"]["connections"]["syn_retried"]:
            self.reasons["new: SYN sent again"] = groups["new"]["connections"]["syn_retried"]
        return [(kind, self.done[kind], self.lost[kind], self.cut[kind])
                for kind in ("keep-alive", "http2", "new", "upload", "WebSocket", "events")]
