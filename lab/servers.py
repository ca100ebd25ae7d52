"""Servers beside one another, for the experiments of this folder: files and ports of their own, and an end for all."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ENGINES = ["event", "fibers", "pipeline", "pipeline:never", "pool", "threads", "isolated"]
RELEASE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../target/release/forebay")


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Servers:
    """A folder, what is started in it, and its end: `with Servers(PROGRAM) as servers`."""

    def __init__(self, program=None):
        self.program = os.path.realpath(program or RELEASE)
        self.work = tempfile.mkdtemp()
        os.chmod(self.work, 0o755)
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.started:
            self.stop(server, wait=False)
        for server in self.started:
            self.stop(server)
        shutil.rmtree(self.work, ignore_errors=True)

    def path(self, name, text=None):
        """A file of the folder, with this text if there is one."""
        if text is not None:
            with open(f"{self.work}/{name}", "w") as file:
                file.write(text)
        return f"{self.work}/{name}"

    def certificate(self):
        """A certificate for 127.0.0.1: cert.pem, key.pem and both.pem."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                        "-keyout", self.path("key.pem"), "-out", self.path("cert.pem")],
                       check=True, stderr=subprocess.DEVNULL)
        self.path("both.pem", open(self.path("cert.pem")).read() + open(self.path("key.pem")).read())

    def start(self, name, words, **more):
        """A program whose output goes to NAME.log."""
        log = open(self.path(f"{name}.log"), "w")
        self.started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more))
        return self.started[-1]

    def stop(self, server, wait=True):
        server.terminate()
        if wait:
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def forebay(self, engine, text):
        """The program with this engine, such as `pipeline:never`, and these lines of its file."""
        name, _, fuse = engine.partition(":")
        more = f'pipeline.fuse = "{fuse}"\n' if fuse else ""
        head = f'engine = "{name}"\nlog.access = "off"\ncontrol.socket = "off"\n{more}'
        file = self.path(f"{name}{fuse}.toml", head + text)
        return self.start(name + fuse, [self.program, "run", "-c", file])

    def nginx(self, http, main="daemon off;"):
        """With another `main` than that it is in the background, as it has to be for a change of its program."""
        text = f"""{main} user root; pid {self.work}/nginx.pid; error_log {self.work}/nginx.err;
worker_processes auto; events {{ worker_connections 4000; }}
http {{ access_log off; sendfile on; client_body_temp_path {self.work}; proxy_temp_path {self.work};
{http}
}}
"""
        return self.start("nginx", [shutil.which("nginx") or "nginx", "-c", self.path("nginx.conf", text)])

    def haproxy(self, text, words=(), main=""):
        head = "global\n maxconn 4000\n" + main + "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
        return self.start("haproxy", ["haproxy", "-db", *words, "-f", self.path("haproxy.cfg", head + text)])

    def await_port(self, port, name):
        """Until something listens there; else the end, with what it has said."""
        for _ in range(150):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        sys.exit(f"{name} does not listen: {open(self.path(name.replace(':', '') + '.log')).read()[-800:]}")
