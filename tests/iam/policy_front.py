"""PolicyFront: stands before the simulated services, and refuses what an IAM policy does not allow, as AWS does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from iam.api_calls import Call, call_of

_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


class PolicyFront:
    """Owns what was called. `services` are the URLs by the first part of an action; the policy is a JSON document."""

    def __init__(self, services: Mapping[str, str], policy: Mapping[str, Any]) -> None:
        self._hosts = {service: urlsplit(url).netloc for service, url in services.items()}
        self._statements = policy["Statement"]
        self._stream = ""
        self.url = ""
        self.called: set[str] = set()
        self.denied: set[str] = set()

    def has_expired(self, headers: Mapping[str, str]) -> bool:
        """Whether a request is signed with expired keys; these keys never expire."""
        return False

    def target_of(self, call: Call) -> HTTPConnection | None:
        """A connection to the service of an allowed call; None for one that the policy does not allow."""
        resources = call.resources or (self._stream,)
        self._stream = call.resources[0] if call.action.endswith(":GetShardIterator") else self._stream
        allowed = all(self._allows(call.action, resource) for resource in resources)
        (self.called if allowed else self.denied).add(call.action)
        return HTTPConnection(self._hosts[call.service], timeout=60) if allowed else None

    def _allows(self, action: str, resource: str) -> bool:
        return any(
            action in statement["Action"] and any(fnmatchcase(resource, each) for each in _list(statement["Resource"]))
            for statement in self._statements
        )


def _list(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


class _Handler(BaseHTTPRequestHandler):
    """Passes an allowed request on, and its response back while it arrives."""

    protocol_version = "HTTP/1.1"
    front: PolicyFront

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call = call_of(self.command, self.path, self.headers, body)
        if self.front.has_expired(dict(self.headers.items())):
            self._refuse(call, "ExpiredToken")
            return
        upstream = self.front.target_of(call)
        if upstream is None:
            self._refuse(call)
            return
        try:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            self._send_back(upstream)
        except OSError:  # the client or the service has gone
            self.close_connection = True
        finally:
            upstream.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _send_back(self, upstream: HTTPConnection) -> None:
        response = upstream.getresponse()
        with response:
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            if response.length is not None:
                body = response.read()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while part := response.read1(65536):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, call: Call, code: str = "AccessDenied") -> None:
        words = f"User: arn:aws:iam::123456789012:user/job is not authorized to perform: {call.action}"
        if call.is_xml:
            error = f"<Error><Code>{code}</Code><Message>{words}</Message></Error>"
            content = (f"<ErrorResponse>{error}</ErrorResponse>" if call.service == "sts" else error).encode()
        else:
            content = json.dumps({"__type": f"{code}Exception", "message": words}).encode()
        self.send_response_only(403 if call.is_xml else 400)
        self.send_header("Content-Type", "application/xml" if call.is_xml else "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no error."""


@contextmanager
def serve_policy(services: Mapping[str, str], policy: Mapping[str, Any]) -> Iterator[PolicyFront]:
    """A front under whose `url` all services are reached, as far as the policy allows."""
    with serve_front(PolicyFront(services, policy)) as front:
        yield front


@contextmanager
def serve_front(front: PolicyFront) -> Iterator[PolicyFront]:
    """Listen for this front."""
    handler = type("Handler", (_Handler,), {"front": front})
    with _Server(("127.0.0.1", 0), handler) as server:
        front.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield front
        finally:
            server.shutdown()
            thread.join()
