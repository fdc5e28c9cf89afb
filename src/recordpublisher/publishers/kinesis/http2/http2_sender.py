"""Http2Sender: sends requests that the SDK has signed over HTTP/2, and returns their responses to the SDK."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.httpsession import ProxyConfiguration
from botocore.utils import get_environ_proxies

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.fanout import HTTP_PROTOCOL

from ..endpoint import host_header
from .http2_pool import Http2ConnectionPool
from .http2_stream import Http2Stream

_HTTP1_ONLY_HEADERS = {"host", "connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection"}
_MAX_ERROR_BODY_BYTES = 64 * 1024


class Http2Sender:
    """Owns a connection pool for each server. The SDK still does endpoint rules, signing, user agent and error parsing."""

    def __init__(self, seconds: float, ca_bundle: str | None) -> None:
        """`seconds`: the deadline of opening a connection; `ca_bundle`: a file instead of the SDK's certificates."""
        self._seconds = seconds
        self._ca_bundle = ca_bundle
        self._pools: dict[str, Http2ConnectionPool] = {}

    async def send(self, request: AWSPreparedRequest, **_: Any) -> Http2Response:
        """Handler of the SDK's event `before-send`: it returns the response.

        Raises: ConfigurationError when the SDK would use a proxy, StreamLostError, OSError, TimeoutError.
        """
        url = urlsplit(request.url)
        connection = await self._pool_of(url).connection()
        stream = connection.request(_headers(request, url), request.body)
        try:
            await stream.wait_for_headers()
        except BaseException:
            stream.close()
            raise
        return Http2Response(stream)

    async def close(self) -> None:
        """Close every connection; open streams end."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _pool_of(self, url: SplitResult) -> Http2ConnectionPool:
        server = f"{url.scheme}://{url.netloc}"
        if server not in self._pools:
            _refuse_proxy(url)
            self._pools[server] = Http2ConnectionPool(url, self._seconds, self._ca_bundle)
        return self._pools[server]


def _refuse_proxy(url: SplitResult) -> None:
    """Never connect directly where the SDK would not, which a network may forbid. Raises: ConfigurationError."""
    if ProxyConfiguration(get_environ_proxies(url.geturl())).proxy_url_for(url.geturl()) is None:
        return
    name = f"{url.scheme.upper()}_PROXY"
    raise ConfigurationError(
        HTTP_PROTOCOL.key,
        "HTTP2",
        f"HTTP1_1, or HTTP2 with {url.hostname} in NO_PROXY",
        reason=f"requests to {url.hostname} go through a proxy ({name}), and subscriptions over HTTP/2 cannot",
    )


class Http2Response:
    """A response in the form that the SDK expects of its HTTP client."""

    def __init__(self, stream: Http2Stream) -> None:
        self.status_code = stream.status
        self.headers = HeadersDict(stream.headers)
        self.raw = stream

    @property
    async def content(self) -> bytes:
        """The body of an error response; a long page of a proxy is truncated."""
        body = b""
        try:
            while len(body) < _MAX_ERROR_BODY_BYTES and (data := await self.raw.readany()):
                body += data
        finally:
            self.raw.close()
        return body


def _headers(request: AWSPreparedRequest, url: SplitResult) -> list[tuple[str, str]]:
    """The request's headers in HTTP/2 form: names in lower case, the signed host as authority."""
    given = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    pseudo = {":method": request.method, ":authority": host_header(url), ":scheme": url.scheme, ":path": path}
    return [*pseudo.items(), *((name, value) for name, value in given.items() if name not in _HTTP1_ONLY_HEADERS)]
