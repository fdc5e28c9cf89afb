"""Endpoint and region of the service, checked before anything is sent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigurationError
from ..properties.properties import Properties
from ..properties.table import ENDPOINT, REGION
from ..stream_arns import is_arn, region_of_arn
from .credentials import profile_session

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
_SIGNING_REGION = "us-east-1"
DEFAULT_PORTS = {"http": 80, "https": 443}


def endpoint_of(properties: Properties) -> str | None:
    """The endpoint, or None for the region's default. Raises: ConfigurationError when it is not an http(s) URL."""
    endpoint = properties.value(ENDPOINT)
    if endpoint is None:
        return None
    if not _is_http_url(endpoint):
        raise ConfigurationError(ENDPOINT.key, endpoint, "an http:// or https:// URL with a host, and a port if needed")
    return endpoint


def region_of(properties: Properties, streams: Iterable[str] = ()) -> str:
    """The region: as set, else of a stream's ARN, else of the environment or the profile. With `aws.endpoint` any region works.

    Raises: ConfigurationError when there is none, or when a stream's ARN is of another region.
    """
    given = properties.value(REGION)
    in_arns = {region_of_arn(stream) for stream in streams if is_arn(stream)}
    region = given or next(iter(in_arns), None) or _region_of_environment(properties)
    if region is None and properties.is_set(ENDPOINT):
        return _SIGNING_REGION
    if region is None:
        raise ConfigurationError(
            REGION.key, None, "a region such as eu-west-1, here or in AWS_REGION, or streams as ARNs"
        )
    if not properties.is_set(ENDPOINT) and not _REGION.fullmatch(region):
        raise ConfigurationError(REGION.key, region, "a region such as eu-west-1")
    if in_arns - {region} and not properties.is_set(ENDPOINT):
        raise ConfigurationError(REGION.key, region, f"the region of the streams' ARNs: {', '.join(sorted(in_arns))}")
    return region


def host_header(url: SplitResult) -> str:
    """The host of a URL as it is signed and sent: without the scheme's default port."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return host if url.port in (None, DEFAULT_PORTS[url.scheme]) else f"{host}:{url.port}"


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or a bracket is not closed
        return False


def _region_of_environment(properties: Properties) -> str | None:
    """As boto3: a profile chosen by property brings its region, and a region in the environment comes before that of any profile."""
    found: str | None = os.environ.get("AWS_REGION") or profile_session(properties).get_config_variable("region")
    return found
