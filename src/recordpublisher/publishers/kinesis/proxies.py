"""Whether calls go through a proxy, and which: by the environment, or the settings of macOS and Windows, as the AWS SDK finds it.

The SDK is not imported here.
"""

import os
import sys
from urllib.parse import urlsplit

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def has_proxies() -> bool:
    """Whether a proxy is set for any host."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # 5 ms of CPU

    return not getproxies().keys().isdisjoint({"http", "https", "all"})


def proxy_for(url: str) -> str | None:
    """The URL of the proxy through which the SDK calls `url`; None: it calls it directly, as where NO_PROXY has the host."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy.removeprefix('//')}"
