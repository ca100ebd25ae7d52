#!/usr/bin/env python3
"""A stage of one's own: decides what nobody may see, and passes on what is left.

    process.py HOST:PORT RESPOND_HOST:PORT FORBIDDEN_PREFIX

It stands in the place of process (isolated.process_at), before a server at RESPOND."""
import http.client, posixpath, sys, threading, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

own, respond, forbidden = sys.argv[1:]
kept = threading.local()
OF_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "expect")
OF_BODY = ("content-length", "transfer-encoding")

# on a connection that is kept, or on a new one
def ask(method, path, headers):
    for is_new in (not hasattr(kept, "next"), True):
        if is_new:
            kept.next = http.client.HTTPConnection(respond)
        try:
            kept.next.request(method, path, headers=headers)
            return kept.next.getresponse()
        except (http.client.HTTPException, OSError):
            if is_new:
                raise

class Stage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        # a body is not read: it is no request of this connection
        self.close_connection |= any(name in self.headers for name in OF_BODY)
        path = posixpath.normpath("/" + urllib.parse.unquote(self.path.split("?")[0]).lstrip("/"))
        if path.startswith(forbidden):
            return self.tell(403, [], b"Not for you\n")
        fields = {k: v for k, v in self.headers.items() if k.lower() not in OF_CONNECTION + OF_BODY}
        answer = ask(self.command, self.path, fields)
        self.tell(answer.status, answer.getheaders(), answer.read())
    do_HEAD = do_OPTIONS = do_GET
    def tell(self, status, fields, body):
        self.send_response_only(status)
        for name, value in fields:
            if name.lower() not in OF_CONNECTION + OF_BODY:
                self.send_header(name, value)
        if status not in (204, 304):
            length = dict((k.lower(), v) for k, v in fields).get("content-length", len(body))
            self.send_header("Content-Length", length if self.command == "HEAD" else len(body))
        if self.close_connection: self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer((own.split(":")[0], int(own.split(":")[1])), Stage).serve_forever()
