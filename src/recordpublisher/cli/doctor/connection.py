"""Checks the way to the services: region, credentials, CA file, proxy, DNS and connection."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from urllib.parse import SplitResult, urlsplit

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.kinesis import region_of, session_with_credentials
from recordpublisher.publishers.kinesis.credentials_without_sdk import provider_name
from recordpublisher.publishers.kinesis.endpoints import DEFAULT_PORTS
from recordpublisher.publishers.kinesis.error_mapping import translate_errors
from recordpublisher.publishers.kinesis.proxies import proxy_for
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess
from recordpublisher.publishers.kinesis.sdk.credentials import credentials_of
from recordpublisher.publishers.kinesis.sdk.transport import SdkTransport
from recordpublisher.publishers.kinesis.trusted_cas import ca_bundle_path
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ENDPOINT, REGION
from recordpublisher.publishers.safe_text import mask_passwords
from recordpublisher.publishers.shards import arn_of, region_of_arn

from .findings import Finding, NotCheckedError, Verdict, examine

CONNECTION_PREFIX = "connection"
"""The names of checks of connections begin with this word. If one of them fails, no call can succeed."""
CREDENTIALS, REGION_CHECK = "credentials", "region"
_CONNECT_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
FindEndpoint = Callable[[], Awaitable[str]]
"""Returns the URL of a service. Raises: NotCheckedError if the URL is not known."""


async def aws_findings(properties: Properties, streams: list[str]) -> list[Finding]:
    """Return the findings about region, credentials and CA file, or only the finding that no region is set."""
    region = await examine(REGION_CHECK, lambda: region_of(properties, streams))
    if region.verdict is Verdict.PROBLEM:
        return [region]
    return [
        region,
        await examine(CREDENTIALS, lambda: _credentials(properties, streams)),
        await examine("CA file", lambda: _ca_file(properties, streams)),
    ]


async def service_findings(properties: Properties, services: Mapping[str, str | None]) -> list[Finding]:
    """Return where the calls of each service go, and which credentials sign them.

    - `services`: the SDK's name of each service, with the endpoint that the properties set, or None.
    """

    async def found(service: str) -> str:
        with translate_errors(service):
            there = await AwsAccess(service, properties, services[service]).refresh()
        shown = f"{there.access_key[:4]}...{there.access_key[-4:]}" if len(there.access_key) > 12 else there.access_key
        return f"{mask_passwords(there.endpoint)}, region {there.region}, signed by {shown} (found by {there.found_by})"

    return [await examine(f"calls of {service}", partial(found, service)) for service in services]


async def network_findings(endpoints: Mapping[str, FindEndpoint]) -> list[Finding]:
    """Check the proxy, the name of the host, and a connection, for each service that is called.

    If there are several services, the name of each check contains the name of its service.
    """
    findings = []
    for service, find in endpoints.items():
        endpoint = asyncio.ensure_future(_parsed(find))
        checks = {"proxy": _proxy, "DNS": _address, CONNECTION_PREFIX: _connection}
        for name, check in checks.items():
            shown = name if len(endpoints) == 1 else f"{name}, {service}"
            findings.append(await examine(shown, partial(check, endpoint)))
    return findings


def kinesis_endpoints(properties: Properties, streams: list[str]) -> dict[str, FindEndpoint]:
    """Return a function that finds the endpoint, for each service that a stream belongs to."""
    regions = {service_and_region(properties, stream): _region_of(properties, stream) for stream in streams}
    return {service: partial(kinesis_endpoint, properties, streams, region) for service, region in regions.items()}


def service_and_region(properties: Properties, stream: str) -> str:
    """Return the name of a stream's service for findings: `Kinesis`, or `Kinesis in eu-west-1` if the stream's ARN decides the region."""
    region = _region_of(properties, stream)
    return "Kinesis" if region is None else f"Kinesis in {region}"


def _region_of(properties: Properties, stream: str) -> str | None:
    arn = None if properties.is_set(ENDPOINT) else arn_of(stream)
    return None if arn is None else region_of_arn(arn)


async def kinesis_endpoint(properties: Properties, streams: list[str], region: str | None = None) -> str:
    """Return the URL to which calls about the streams go: `aws.endpoint`, or else the endpoint of the SDK.

    `region`: the region of the streams' ARNs.
    """
    transport = SdkTransport(properties, streams, region=region)
    try:
        return await transport.endpoint_url()
    finally:
        await transport.close()


async def _parsed(find: FindEndpoint) -> SplitResult:
    """Return the parts of the endpoint's URL. Raises: NotCheckedError if the URL has no host, such as the URL of a folder."""
    url = await find()
    parts = urlsplit(url)
    if not parts.hostname:
        raise NotCheckedError(f"{mask_passwords(url)} has no host")
    return parts


async def _credentials(properties: Properties, streams: list[str]) -> str:
    await credentials_of(session_with_credentials(properties, region_of(properties, streams)))
    return f"found by {provider_name(properties)}"


def _ca_file(properties: Properties, streams: list[str]) -> str:
    session = session_with_credentials(properties, region_of(properties, streams))
    return ca_bundle_path(session) or "the list of the AWS SDK"


async def _proxy(found: Awaitable[SplitResult]) -> str:
    endpoint = await found
    proxy = proxy_for(endpoint.geturl())
    if proxy is None:
        return "none"
    words = f"calls go through {mask_passwords(proxy)}"
    if endpoint.hostname in _LOOPBACK:
        raise RecordPublisherError(f"{words}, but {endpoint.hostname} is this machine: add it to NO_PROXY")
    return words


async def _address(found: Awaitable[SplitResult]) -> str:
    endpoint = await found
    host = endpoint.hostname
    if proxy_for(endpoint.geturl()) is not None:
        raise NotCheckedError(f"the proxy looks up {host}")
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        words = (
            f"{host} is not known to this machine's DNS ({error}): check {REGION.key}, {ENDPOINT.key} and the network"
        )
        raise RecordPublisherError(words) from error
    return f"{host} is {addresses[0][4][0]}"


async def _connection(found: Awaitable[SplitResult]) -> str:
    """Check that the proxy, or without a proxy the endpoint, accepts a connection.

    Raises: RecordPublisherError if it does not; NotCheckedError if the address of the endpoint is not known.
    """
    endpoint = await found
    proxy = proxy_for(endpoint.geturl())
    server = endpoint if proxy is None else urlsplit(proxy)
    host, port = _host_and_port(server)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # A TimeoutError is an OSError.
        if proxy is None and isinstance(error, socket.gaierror):
            raise NotCheckedError(f"the address of {host} is not known") from error
        remedy = (
            f"check {ENDPOINT.key} and the network, and that a server listens there"
            if proxy is None
            else f"the proxy is down or wrong: check HTTP_PROXY and HTTPS_PROXY, or add {endpoint.hostname} to NO_PROXY"
        )
        raise RecordPublisherError(f"{host}:{port} cannot be reached ({_reason(error)}): {remedy}") from error
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return f"{host}:{port} accepts connections"


def _host_and_port(server: SplitResult) -> tuple[str, int]:
    try:
        return server.hostname or "", server.port or DEFAULT_PORTS.get(server.scheme, DEFAULT_PORTS["https"])
    except ValueError:
        # The error would show a part of the URL, which may contain a part of a password with a slash.
        raise RecordPublisherError("the URL of the proxy has no valid port: check HTTP_PROXY and HTTPS_PROXY") from None


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_SECONDS:g} s"
    return os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)
