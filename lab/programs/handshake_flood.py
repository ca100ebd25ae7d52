#!/usr/bin/env python3
"""A flood of TLS handshakes, for `lab/programs/handshakes flood`.

handshake_flood.py none|completing|leaving HOST PORT RATE SECONDS

`leaving` sends the hello of a client and leaves when the server has answered, which cost it a signature and
the client nothing; `completing` ends the handshake, without asking for anything. Clients have 64 addresses.
Prints how many handshakes there were in a second: those that the server has answered.
"""
import selectors
import socket
import ssl
import sys
import time

HOW, HOST, PORT, RATE, SECONDS = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
# more are not under way at once: a server that answers none of them is not asked for ever more
MOST = 2000
PATIENCE = 2.0


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made


def hello(made):
    """The first words of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = made.wrap_bio(incoming, outgoing, server_hostname=None)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


class Client:
    def __init__(self, number, made, words):
        self.began = time.monotonic()
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.bind((f"127.0.1.{number % 64 + 1}", 0))
        self.words, self.session, self.done = words, None, False
        if HOW == "completing":
            self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.session = made.wrap_bio(self.incoming, self.outgoing)
            self.shake()
            self.words = self.outgoing.read()
        self.socket.connect_ex((HOST, PORT))

    def shake(self):
        try:
            self.session.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass

    def ready(self, events):
        """Whether it is over."""
        if events & selectors.EVENT_WRITE and self.words:
            self.words = self.words[self.socket.send(self.words):]
        if events & selectors.EVENT_READ:
            got = self.socket.recv(16384)
            if not got:
                return True
            if self.session is None:
                self.done = True
                return True
            self.incoming.write(got)
            self.shake()
            self.words += self.outgoing.read()
            if self.done and self.words:
                self.words = self.words[self.socket.send(self.words):]
        return self.done and not self.words


def main():
    if HOW == "none":
        time.sleep(SECONDS)
        print("0 /s")
        return
    made = context()
    words = hello(made)
    selector, open_ones = selectors.DefaultSelector(), {}
    began = time.monotonic()
    begun = answered = 0
    while (now := time.monotonic()) - began < SECONDS:
        due = int((now - began) * RATE)
        # what could not be begun in time is not made up for
        begun = max(begun, due - MOST)
        while begun < due and len(open_ones) < MOST:
            begun += 1
            try:
                client = Client(begun, made, words)
            except OSError:
                continue
            open_ones[client.socket.fileno()] = client
            selector.register(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
            if begun % 64 == 0:
                break
        for key, events in selector.select(0.001):
            client = key.data
            try:
                is_over = client.ready(events)
            except (OSError, ssl.SSLError):
                is_over = True
            if is_over or now - client.began > PATIENCE:
                answered += client.done
                selector.unregister(client.socket)
                del open_ones[client.socket.fileno()]
                client.socket.close()
            elif not client.words:
                selector.modify(client.socket, selectors.EVENT_READ, client)
    print(f"{answered / SECONDS:.0f} /s")


main()
