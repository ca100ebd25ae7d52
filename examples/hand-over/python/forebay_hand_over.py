"""Has gunicorn answer requests on the sockets that Forebay hands over; the application does not notice.

    gunicorn -k forebay_hand_over.Worker -b unix:/run/app/receiver.sock --workers 8 site.wsgi

and in Forebay `in_flight = 8` and `keep_alive.connections = 0`, because each worker has one link at a time.
"""
import socket
import struct

from gunicorn.workers.sync import SyncWorker

HEADER = struct.Struct(">4sBBHIQ")
TAKEN, DONE = b"T" + bytes(15), b"D" + bytes(15)


class Handed:
    """The client's socket, in front of which is what Forebay has received of the request."""

    def __init__(self, client, received):
        self.client, self.received = client, received

    def recv(self, size, *flags):
        part, self.received = self.received[:size], self.received[size:]
        return part or self.client.recv(size, *flags)

    def __getattr__(self, name):
        return getattr(self.client, name)


class Worker(SyncWorker):
    """Takes one request from each link."""

    def accept(self, listener):
        # one that finds none has gunicorn wait again, and is to be told
        link, _ = listener.accept()
        try:
            with link:
                self.serve(listener, link)
        except (OSError, struct.error) as error:
            # Forebay has closed the link: the request is somebody else's by now, or its client was told of the failure
            self.log.debug("A link has ended: %s", error)

    def serve(self, listener, link):
        link.settimeout(self.cfg.timeout)
        first, sockets, _, _ = socket.recv_fds(link, 1, 1)
        if not sockets:
            return
        with socket.socket(fileno=sockets[0]) as client, link.makefile("rb") as rest:
            magic, version, _, lines, request, _ = HEADER.unpack(first + rest.read(HEADER.size - 1))
            if (magic, version) != (b"FBHO", 1):
                return
            link.sendall(TAKEN)
            fields = dict(line.split(" ", 1) for line in rest.read(lines).decode().splitlines())
            host, _, port = fields["client"].rpartition(":")
            client.setblocking(True)
            self.handle(listener, Handed(client, rest.read(request)), (host.strip("[]"), int(port)))
        link.sendall(DONE)
