#: run python3 @FILE@ @TMP@/app.sock @THREADS@
#: package python3
#: version --version
"""An application of a few workers, each of which answers one request at a time and closes, as synchronous
workers of Python do. /work?sleep=20ms waits that long."""
import os, re, socket, sys, time

path, workers = sys.argv[1], int(sys.argv[2])
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
os.chmod(path, 0o666)
listening.listen(511)
for _ in range(workers - 1):
    if os.fork() == 0:
        break
while True:
    connection, _ = listening.accept()
    try:
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65536)
            if not received:
                break
            head += received
        else:
            wait = re.search(rb"[?&]sleep=(\d+)ms", head.split(b"\r\n", 1)[0])
            if wait:
                time.sleep(int(wait[1]) / 1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    except OSError:
        pass
    connection.close()
