"""Has gunicorn answer requests on the sockets that Forebay hands over; the application does not notice.

    gunicorn -k forebay_hand_over.Worker -b unix:/run/app/receiver.sock --workers 8 site.wsgi

and in Forebay `in_flight = 8` and `keep_alive.connections = 0`, because each worker has one link at a time.
"""
import socket
import struct

from gunicorn.workers.sync import SyncWorker

HEADER = struct.Struct(">4sBBHIQ")
TAKEN = b"T" + bytes(15)
DONE = b"D" + bytes(15)


class Handed:
    """The client's socket, in front of which is what Forebay has received of the request."""

    def __init__(self, client, received):
        self.client, self.received = client, received

    def recv(self, size, *flags):
        part, self.received = self.received[:size], self.received[size:]
        return part or self.client.recv(size, *flags)

    def __getattr__(self, name):
        return getattr(self.client, name)


def read(link, count):
    """So many bytes; fewer at the end of the link."""
    data = b""
    while len(data) < count and (part := link.recv(count - len(data))):
        data += part
    return data


class Worker(SyncWorker):
    """Takes one request from each link."""

    def accept(self, listener):
        # one that finds none has gunicorn wait again, and is to be told
        link, _ = listener.accept()
        try:
            self.serve(listener, link)
        except OSError as error:
            # Forebay has closed the link: the request is somebody else's by now, or its client was told of the failure
            self.log.debug("A link has ended: %s", error)

    def serve(self, listener, link):
        with link:
            link.settimeout(self.cfg.timeout)
            first, sockets, _, _ = socket.recv_fds(link, HEADER.size, 1)
            if not sockets:
                return
            client = socket.socket(fileno=sockets[0])
            head = first + read(link, HEADER.size - len(first))
            magic, version, _, lines, request, _ = HEADER.unpack(head)
            if (magic, version) != (b"FBHO", 1):
                return client.close()
            link.sendall(TAKEN)
            fields = dict(line.split(" ", 1) for line in read(link, lines).decode().splitlines())
            host, _, port = fields["client"].rpartition(":")
            client.setblocking(True)
            self.handle(listener, Handed(client, read(link, request)), (host.strip("[]"), int(port)))
            link.sendall(DONE)
