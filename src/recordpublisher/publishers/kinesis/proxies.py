"""Finds the proxy of a call as the AWS SDK does: from the environment, or the settings of macOS and Windows.

The SDK is not imported here.
"""

import os
import sys
from urllib.parse import urlsplit

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def has_proxies() -> bool:
    """Return whether a proxy is set for any host."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # imported here because it takes 5 ms of CPU

    return not getproxies().keys().isdisjoint({"http", "https", "all"})


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy through which the SDK calls `url`, or None if it calls `url` directly, as with NO_PROXY."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy.removeprefix('//')}"
