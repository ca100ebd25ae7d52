"""Requests over HTTP/2 that are given up, as bytes."""
import socket
import struct

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
CANCEL = struct.pack(">I", 8)


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request(stream, path):
    """HEADERS of GET PATH, without a body."""
    fields = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x09localhost"
    return frame(1, 5, stream, fields)


def reset(stream):
    return frame(3, 0, stream, CANCEL)


def pairs(streams, path):
    """Each request followed by its reset."""
    return b"".join(request(stream, path) + reset(stream) for stream in streams)


def requests(streams, path):
    return b"".join(request(stream, path) for stream in streams)


def resets(streams):
    return b"".join(reset(stream) for stream in streams)


def connect(port, source="127.0.0.1"):
    client = socket.socket()
    client.settimeout(2)
    client.bind((source, 0))
    client.connect(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(HELLO)
    return client
