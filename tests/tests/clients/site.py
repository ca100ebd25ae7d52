"""Loads every file of a directory from a server with Python's requests, in one session.

usage: site.py URL DIRECTORY [AUTHORITY]
"""
import pathlib
import sys

import requests

base, root = sys.argv[1], pathlib.Path(sys.argv[2])
session = requests.Session()
session.trust_env = False
session.verify = sys.argv[3] if len(sys.argv) > 3 else True

for file in sorted(path for path in root.rglob("*") if path.is_file()):
    url = base + "/" + file.relative_to(root).as_posix()
    expected = file.read_bytes()
    answer = session.get(url, timeout=30)
    assert answer.status_code == 200, (url, answer.status_code)
    # requests asks for gzip and deflate, and unpacks what it gets
    assert answer.content == expected, (url, len(answer.content), len(expected))
    tag = answer.headers["ETag"]

    again = session.get(url, headers={"If-None-Match": tag}, timeout=30)
    assert (again.status_code, again.content) == (304, b""), (url, again.status_code)

    head = session.head(url, timeout=30)
    for field in ("Content-Length", "ETag", "Last-Modified", "Content-Type", "Content-Encoding"):
        assert head.headers.get(field) == answer.headers.get(field), (url, field)

    plain = {"Range": "bytes=3-9", "Accept-Encoding": "identity"}
    part = session.get(url, headers=plain, timeout=30)
    assert (part.status_code, part.content) == (206, expected[3:10]), (url, part.status_code)
    assert part.headers["Content-Range"] == f"bytes 3-9/{len(expected)}", part.headers

redirected = session.get(base + "/css", allow_redirects=False, timeout=30)
assert redirected.status_code == 301 and redirected.headers["Location"].endswith("/css/")
assert session.get(base + "/nothing", timeout=30).status_code == 404
assert session.post(base + "/", data=b"x" * 1000, timeout=30).status_code == 405
assert session.get(base + "/", timeout=30).status_code == 200
with session.get(base + "/files/large.bin", stream=True, timeout=30) as stream:
    with open(root / "files/large.bin", "rb") as file:
        for piece in stream.iter_content(1 << 20):
            assert piece == file.read(len(piece))
        assert file.read() == b""
