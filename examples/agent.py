#!/usr/bin/env python3
"""An agent from outside: slows down the class that asks for too much, while it does.

    agent.py SOCKET CLASS MOST_PER_S

It speaks the protocol of docs/manual/agents.md. What it adds goes when it does."""
import json
import socket
import sys


class Agent:
    def __init__(self, path, owner, lease_ms):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")
        self.id = 0
        self.events = []
        self.ask(do="hello", owner=owner, lease_ms=lease_ms)

    def ask(self, **wish):
        """Sends a request and waits for its answer; events meanwhile are kept."""
        self.id += 1
        self.socket.sendall((json.dumps({"id": self.id, **wish}) + "\n").encode())
        while (line := self.next_line()).get("id") != self.id:
            self.events.append(line)
        if not line["ok"]:
            raise RuntimeError(line["error"])

    def next_line(self):
        line = self.lines.readline()
        if not line:
            sys.exit("the server has gone")
        return json.loads(line)

    def event(self):
        return self.events.pop(0) if self.events else self.next_line()


def main(path, name, most_per_s):
    agent = Agent(path, "example", lease_ms=5000)
    agent.ask(do="stats", every_ms=200)
    limit = {"rate": f"{most_per_s}/s", "burst": most_per_s}
    rule = {"name": "too much of " + name, "path": "*", "requests": limit}
    before, is_slowed = None, False
    while stats := agent.event().get("stats"):
        now = (stats["at_ns"], stats["classes"][name]["offered"])
        if before:
            per_s = (now[1] - before[1]) * 1e9 / (now[0] - before[0])
            if per_s > most_per_s and not is_slowed:
                agent.ask(do="put", rules=[rule])
                is_slowed = True
            elif per_s < most_per_s / 2 and is_slowed:
                agent.ask(do="remove", rules=[rule["name"]])
                is_slowed = False
        before = now
        agent.ask(do="renew")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
