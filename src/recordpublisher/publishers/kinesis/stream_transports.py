"""StreamTransports chooses the transport for calls about a stream, by the region and the account in its ARN."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

from ..errors import ConfigurationError
from ..properties.groups.reading import ENDPOINT, REGION_ENDPOINT, STREAM_ROLE_ARN
from ..properties.properties import Properties
from ..stream_arns import account_of_arn, arn_of, region_of_arn, stream_name
from .endpoint import region_of
from .fast_path.direct_transport import DirectTransport
from .known_access import known_access
from .ports import Transport


class Destination(NamedTuple):
    """The region that calls about a stream go to, and the role that makes them, or None for the provider's credentials."""

    region: str
    role: str | None


class StreamTransports:
    """Owns a transport for each region and role. Most jobs have one.

    A stream given by name belongs to the job's region. A stream given by ARN belongs to the region of its ARN, unless
    all calls go to `aws.endpoint`.

    Making one checks the properties without a call.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(self, properties: Properties, streams: Iterable[str] = ()) -> None:
        streams = tuple(streams)
        self._properties = properties
        self._home = Destination(region_of(properties, streams), None)
        self._roles = properties.with_prefix(STREAM_ROLE_ARN)
        self._check_roles(streams)
        self._destinations: dict[str | None, Destination] = {}
        self._transports: dict[Destination, Transport] = {}
        for stream in streams or [""]:
            self.of(arn_of(stream))

    def of(self, arn: str | None) -> Transport:
        """Return the transport for the stream with an ARN, or for streams given by name if `arn` is None.

        Raises: ConfigurationError if the ARN is invalid, or a property of its region is.
        """
        destination = self._destinations.get(arn)
        if destination is None:
            destination = self._destinations[arn] = self._home if arn is None else self._destination_of(arn)
        if destination not in self._transports:
            self._transports[destination] = _transport_to(destination, self._properties)
        return self._transports[destination]

    async def close(self) -> None:
        """Close every transport; open subscriptions end."""
        async with AsyncExitStack() as closing:
            for transport in self._transports.values():
                closing.push_async_callback(transport.close)

    def _destination_of(self, arn: str) -> Destination:
        region, name, account = region_of_arn(arn), stream_name(arn).lower(), account_of_arn(arn)
        has_own_endpoint = region in self._properties.with_prefix(REGION_ENDPOINT)
        if self._properties.is_set(ENDPOINT) and not has_own_endpoint:
            region = self._home.region
        return Destination(region, self._roles.get(name) or self._roles.get(account))

    def _check_roles(self, streams: Iterable[str]) -> None:
        by_name = {stream_name(stream).lower() for stream in streams if arn_of(stream) is None}
        for name in by_name & self._roles.keys():
            key = STREAM_ROLE_ARN.key + name
            raise ConfigurationError(key, self._roles[name], "a role for a stream that is given by its ARN")


def _transport_to(destination: Destination, properties: Properties) -> Transport:
    """Return the transport that needs no SDK if that is enough to begin with, else the SDK's."""

    def with_sdk() -> Transport:
        from .sdk.transport import SdkTransport

        return SdkTransport(properties, region=destination.region, role=destination.role)

    access = known_access(properties, destination.region, destination.role)
    return with_sdk() if access is None else DirectTransport(access, properties, with_sdk)


class OneTransport:
    """Owns one transport, which is used for every stream."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def of(self, arn: str | None) -> Transport:
        """Return the transport, for any ARN."""
        return self._transport

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()
