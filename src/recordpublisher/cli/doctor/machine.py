"""What this machine has: Python, Spark, and the way to the service."""

from __future__ import annotations

import asyncio
import platform
import socket
from importlib.metadata import version
from importlib.util import find_spec
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from recordpublisher.demo.requirements import check_java
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.kinesis import region_of, session_with_credentials
from recordpublisher.publishers.kinesis.ca_bundle import ca_bundle_path
from recordpublisher.publishers.kinesis.credentials import provider_name
from recordpublisher.publishers.kinesis.sdk_transport import SdkTransport
from recordpublisher.publishers.password_masking import mask_passwords
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import ENDPOINT, REGION

from .findings import Finding, NotCheckedError, examine


async def machine_findings(properties: Properties, streams: list[str]) -> list[Finding]:
    """Python, Spark with Java, region, settings of credentials, CA file, proxy and the name of the service's host."""
    return [
        await examine("Python", platform.python_version),
        await examine("Spark", _spark),
        await examine("region", lambda: region_of(properties, streams)),
        await examine("credentials", lambda: _credentials(properties, streams)),
        await examine("CA file", lambda: _ca_file(properties, streams)),
        await examine("proxy", lambda: _proxy(properties, streams)),
        await examine("DNS", lambda: _address(properties, streams)),
    ]


def _spark() -> str:
    if find_spec("pyspark") is None:
        raise NotCheckedError("pyspark is not installed; only jobs of Spark need it, and Java")
    check_java()
    return f"pyspark {version('pyspark')}, with Java"


def _credentials(properties: Properties, streams: list[str]) -> str:
    session_with_credentials(properties, region_of(properties, streams))
    return f"the settings of {provider_name(properties)} are complete"


def _ca_file(properties: Properties, streams: list[str]) -> str:
    session = session_with_credentials(properties, region_of(properties, streams))
    return ca_bundle_path(session) or "the list of the AWS SDK"


async def _proxy(properties: Properties, streams: list[str]) -> str:
    proxy = _proxy_for(await _endpoint(properties, streams))
    return "none" if proxy is None else f"calls go through {mask_passwords(proxy)}"


async def _address(properties: Properties, streams: list[str]) -> str:
    endpoint = await _endpoint(properties, streams)
    host = endpoint.hostname or ""
    if _proxy_for(endpoint) is not None:
        raise NotCheckedError(f"the proxy looks up {host}")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        words = (
            f"{host} is not known to this machine's DNS ({error}): check {REGION.key}, {ENDPOINT.key} and the network"
        )
        raise RecordPublisherError(words) from error
    return f"{host} is {found[0][4][0]}"


def _proxy_for(endpoint: SplitResult) -> str | None:
    return None if proxy_bypass(endpoint.hostname or "") else getproxies().get(endpoint.scheme)


async def _endpoint(properties: Properties, streams: list[str]) -> SplitResult:
    transport = SdkTransport(properties, streams)
    try:
        return urlsplit(await transport.endpoint_url())
    finally:
        await transport.close()
