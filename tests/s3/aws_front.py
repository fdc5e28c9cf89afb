"""moto behind http and https: who has signed each request, and what came through the proxy."""

import ssl
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from servers.certificates import CertificateAuthority
from servers.moto_server import one_at_a_time


class AwsFront:
    """`http`, `https`: the URLs. `proxy`: one that knows the host `aws.test` only. `ca`: the file that trusts `https`."""

    def __init__(self, http, https, proxy, ca):
        self.http, self.https, self.proxy, self.ca = http, https, proxy, ca
        self.signers, self.tokens = set(), set()
        self.proxied = 0


class _Proxy(BaseHTTPRequestHandler):
    """Passes requests to any host to `front`."""

    protocol_version = "HTTP/1.1"
    front = None

    def _forward(self):
        self.front.proxied += 1
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = HTTPConnection("127.0.0.1", urlsplit(self.front.http).port)
        path = urlsplit(self.path)._replace(scheme="", netloc="").geturl()
        headers = {
            name: value for name, value in self.headers.items() if name.lower() != "host"
        }  # moto finds buckets in names
        connection.request(self.command, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection") or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - the names of http.server

    def log_message(self, *_):
        """Nothing."""


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_):
        """Nothing."""


@contextmanager
def serve_aws(folder):
    """An AwsFront with a bucket named `bucket`."""
    ca = CertificateAuthority(folder)
    moto = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    front = AwsFront("", "", "", ca.file)

    def app(environ, start_response):
        _, _, scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")
        front.signers.add(scope.partition("/")[0])
        front.tokens.add(environ.get("HTTP_X_AMZ_SECURITY_TOKEN"))
        return moto(environ, start_response)

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*ca.issue())

    _Proxy.front = front
    made = [
        make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet),
        make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet, ssl_context=tls),
        ThreadingHTTPServer(("127.0.0.1", 0), _Proxy),
    ]
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in made]
    for thread in threads:
        thread.start()
    front.http, front.https, front.proxy = (
        f"{scheme}://127.0.0.1:{server.server_address[1]}"
        for scheme, server in zip(("http", "https", "http"), made, strict=True)
    )
    s3 = boto3.client(
        "s3", endpoint_url=front.http, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    s3.create_bucket(Bucket="bucket")
    s3.close()
    try:
        yield front
    finally:
        for server in made:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
