"""A web server of files on the loopback address, whose answers fail as a test asks."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`; the next of `server.faults` sends the answer instead, if there is one."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        wanted = self.headers.get("Range")
        name = self.path.rpartition("/")[2]
        self.server.requests.append((name, wanted))
        self.close_connection = True
        if name not in self.server.files:
            return self.send_status(404)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        return fault(self, self.server.files[name], start)

    def send_status(self, code, **headers):
        self.send_response(code)
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()


def answer(num_bytes=None, announced=None, total=None, ranges=True, spoil=False, after=None, **headers):
    """Return what sends the rest of a file.

    `num_bytes`: the connection is cut after so many; `announced`: the length that the header says; `total`: the
    size of the file that it says; `ranges`: whether the server knows them; `spoil`: flip a bit; `after`: what the
    server does before it closes the connection.
    """

    def send(handler, body, start):
        if not ranges:
            start = 0
        whole = len(body) if total is None else total
        if start >= len(body):
            handler.send_status(416, Content_Range=f"bytes */{whole}")
            return
        rest = memoryview(body)[start:]
        if spoil:
            rest = memoryview(bytes(rest[:-1]) + bytes([rest[-1] ^ 1]))
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{whole}")
        if announced != "nothing":
            handler.send_header("Content-Length", str(len(rest) if announced is None else announced))
        for header, value in headers.items():
            handler.send_header(header.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(rest[:num_bytes])
        handler.wfile.flush()
        if after is not None:
            after(handler, rest[num_bytes:])

    return send


def status(code, **headers):
    """Return what sends a status without a file."""
    return lambda handler, _body, _start: handler.send_status(code, **headers)


def stall(handler, _rest):
    """Send nothing more, and keep the connection open."""
    handler.server.released.wait(60)


def drip(handler, rest):
    """Send a byte now and then."""
    for byte in rest:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        if handler.server.released.wait(0.05):
            return


class FileServer(ThreadingHTTPServer):
    """Serves files by name, as a context manager."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(files)
        self.faults, self.always, self.requests = [], answer(), []
        self.released = threading.Event()

    def handle_error(self, *_):
        """Keep quiet about clients that went away."""

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.shutdown()
        self.server_close()

    def write_list(self, path: Path, *, sizes=True, **keys) -> Path:
        """Write a list of the files; the part of a file is what is before the first _ of its name."""
        files = []
        for name, body in self.files.items():
            checksum = f"md5:{hashlib.md5(body, usedforsecurity=False).hexdigest()}"
            files.append({"name": name, "part": name.partition("_")[0], "checksum": checksum})
            if sizes:
                files[-1]["size"] = len(body)
            if name.endswith(".tar"):
                files[-1]["unpack_to"] = name.removesuffix(".tar")
        address = f"http://127.0.0.1:{self.server_port}/files/"
        dataset = {"title": "small jets", "address": address, "data_config": "jetclass_full", "files": files}
        path.write_text(yaml.safe_dump(dataset | keys))
        return path
