"""A model of the part of Google Cloud Storage's XML API that a store needs: objects with generations, conditional writes, listings."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

MATCH = "x-goog-if-generation-match"
Stored = tuple[bytes, int, dict[str, str]]


class Objects(ThreadingHTTPServer):
    """Owns the objects: content, generation and metadata by path. A write without a condition is an error: none is wanted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.stored: dict[str, Stored] = {}
        self.writes = 0
        self.lock = threading.Lock()


class Requests(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Objects

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        metadata = {key.lower(): value for key, value in self.headers.items() if key.lower().startswith("x-goog-meta-")}
        name = unquote(self.path.partition("?")[0])
        with self.server.lock:
            stored = self.server.stored.get(name)
            if int(self.headers[MATCH]) != (0 if stored is None else stored[1]):
                return self._answer(412)
            self.server.writes += 1
            self.server.stored[name] = (content, self.server.writes, metadata)
        return self._answer(200, headers=_headers(self.server.stored[name]))

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if "list-type" in url.query:
            return self._list(url.path + "/", parse_qs(url.query).get("prefix", [""])[0])
        stored = self.server.stored.get(unquote(url.path))
        if stored is None:
            return self._answer(404)
        return self._answer(200, stored[0], {**_headers(stored), **stored[2]})

    def do_DELETE(self) -> None:
        with self.server.lock:
            gone = self.server.stored.pop(unquote(self.path.partition("?")[0]), None)
        self._answer(404 if gone is None else 204)

    def _list(self, bucket: str, prefix: str) -> None:
        entries = "".join(
            f"<Contents><Key>{escape(name.removeprefix(bucket))}</Key><LastModified>2026-11-26T00:00:00.000Z</LastModified>"
            f"<ETag>{_headers(stored)['ETag']}</ETag><Size>{len(stored[0])}</Size></Contents>"
            for name, stored in sorted(self.server.stored.items())
            if name.startswith(bucket + prefix)
        )
        self._answer(200, f"<ListBucketResult>{entries}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: object) -> None:
        """Says nothing."""


def _headers(stored: Stored) -> dict[str, str]:
    return {
        "ETag": f'"{hashlib.md5(stored[0]).hexdigest()}"',
        "x-goog-generation": str(stored[1]),
        "Last-Modified": "Thu, 26 Nov 2026 00:00:00 GMT",
    }


@contextmanager
def serve_google_storage() -> Iterator[str]:
    """Serve it in a thread; gives its address."""
    server = Objects()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
