"""Finds the proxy of calls, in the environment or in the settings of the system. Only the SDK makes calls through a proxy."""

from __future__ import annotations

import os
import sys
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigurationError
from ..properties.fan_out_properties import HTTP_PROTOCOL

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy through which the SDK calls `url`. Return None if it calls `url` directly, for example because of
    NO_PROXY.
    """
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy.removeprefix('//')}"


def refuse_http2_proxy(url: SplitResult) -> None:
    """Check that calls to `url` need no proxy, because connections over HTTP/2 cannot use one. Raises: ConfigurationError if they do."""
    # This client connects directly. If the network allows only connections through the proxy, it could not reach the service.
    if proxy_for(url.geturl()) is None:
        return
    name = f"{url.scheme.upper()}_PROXY"
    raise ConfigurationError(
        HTTP_PROTOCOL.key,
        "HTTP2",
        f"HTTP1_1, or HTTP2 with {url.hostname} in NO_PROXY",
        reason=f"requests to {url.hostname} go through a proxy ({name}), which subscriptions over HTTP/2 cannot use",
    )


def has_proxies() -> bool:
    """Return whether a proxy is set for any host."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # Imported here because it takes 5 ms of CPU.

    return not getproxies().keys().isdisjoint({"http", "https", "all"})
