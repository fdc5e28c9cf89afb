"""Reads the endpoint and region of the service, and checks them before anything is sent. `known_access` knows the service's own hosts."""

import os
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigurationError
from ..properties.groups.reading import ENDPOINT, REGION, REGION_ENDPOINT
from ..properties.properties import Properties
from ..stream_arns import arn_of, region_of_arn
from .plain_profile import plain_profile

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
_SIGNING_REGION = "us-east-1"
DEFAULT_PORTS = {"http": 80, "https": 443}


def endpoint_of(properties: Properties, region: str | None = None) -> str | None:
    """Return the endpoint set for a region, else the one set for all, else None for the service's own.

    Raises: ConfigurationError if it is not an http or https URL with a host.
    """
    of_region = None if region is None else properties.with_prefix(REGION_ENDPOINT).get(region)
    key, endpoint = (
        (ENDPOINT.key, properties.value(ENDPOINT)) if of_region is None else (REGION_ENDPOINT.key, of_region)
    )
    if endpoint is None or is_http_url(endpoint):
        return endpoint
    if of_region is not None:
        key += str(region)
    raise ConfigurationError(key, endpoint, "an http:// or https:// URL with a host, and a port if needed")


def region_of(properties: Properties, streams: Iterable[str] = ()) -> str:
    """Return the region of streams that are given by name, and of other services.

    It is the region that is set, else the region that all ARNs share, else that of the environment or the profile, else
    the first of the ARNs' regions. With `aws.endpoint` any region works.

    Raises: ConfigurationError if there is none, or it is not a valid region.
    """
    in_arns = sorted({region_of_arn(arn) for stream in streams if (arn := arn_of(stream))})
    region = (
        properties.value(REGION) or (in_arns[0] if len(in_arns) == 1 else None) or _region_of_environment(properties)
    )
    if region is None and in_arns:
        region = in_arns[0]
    if region is None and properties.is_set(ENDPOINT):
        return _SIGNING_REGION
    if region is None:
        raise ConfigurationError(
            REGION.key, None, "a region such as eu-west-1, here or in AWS_REGION, or streams as ARNs"
        )
    if not properties.is_set(ENDPOINT) and not _REGION.fullmatch(region):
        raise ConfigurationError(REGION.key, region, "a region such as eu-west-1")
    return region


def host_header(url: SplitResult) -> str:
    """Return the host of a URL as it is signed and sent, without the scheme's default port."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return host if url.port in (None, DEFAULT_PORTS[url.scheme]) else f"{host}:{url.port}"


def tls_name(url: SplitResult) -> str:
    """Return the name that a URL's certificate must have: the host without the final dot that marks a full name in DNS."""
    return (url.hostname or "").removesuffix(".")


def is_http_url(text: str) -> bool:
    """Return whether a text is the URL of an http or https server."""
    try:
        parts = urlsplit(text)
        # The URL may have no credentials, because they would be shown with the endpoint.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in text and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is not closed
        return False


def _region_of_environment(properties: Properties) -> str | None:
    """Return the region of the environment, else of the profile, or None.

    As in boto3, a region in the environment takes precedence over the region of any profile, even of one that a
    property selects.
    """
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return region
    if (profile := plain_profile(properties)) is not None:
        return profile.get("region")
    from .sdk.session import profile_session

    found: str | None = profile_session(properties).get_config_variable("region")
    return found
