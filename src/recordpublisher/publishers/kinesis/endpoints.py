"""Finds the region and the endpoint of calls about streams and queues."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigurationError
from ..properties.properties import Properties
from ..properties.reading_properties import ENDPOINT, REGION, REGION_ENDPOINT
from ..shards import arn_of, region_of_arn
from .credentials_without_sdk import plain_profile

PARTITIONS = {
    "aws": (r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d+", "amazonaws.com"),
    "aws-cn": (r"cn-[a-z]+-\d+", "amazonaws.com.cn"),
    "aws-eusc": (r"eusc-de-[a-z]+-\d+", "amazonaws.eu"),
    "aws-us-gov": (r"us-gov-[a-z]+-\d+", "amazonaws.com"),
}
"""The AWS partitions, each with a pattern of its regions, and the suffix of its hosts."""
HOST_KINDS = {
    "GetRecords": "data",
    "GetShardIterator": "data",
    "PutRecords": "data",
    "ListShards": "control",
    "DescribeStreamSummary": "control",
    "DescribeStreamConsumer": "control",
}
"""The calls that most jobs make, with the kind of host that serves each. Calls with a stream's ARN go to such a host of the account."""


# --- endpoint and region ------------------------------------------------------------------------------------------------------------

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
_SIGNING_REGION = "us-east-1"
DEFAULT_PORTS = {"http": 80, "https": 443}


def endpoint_of(properties: Properties, region: str | None = None) -> str | None:
    """Return the endpoint that the properties set for a region, or None to use the service's own.

    The endpoint of this region takes precedence over the endpoint of all regions.

    Raises: ConfigurationError if the endpoint is not an http or https URL with a host.
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
    """Return the region of streams that are given by name, and of other services. It is the first of these:

    1. the region that a property sets,
    2. the region that all ARNs share,
    3. the region of the environment or the profile,
    4. the region of the first ARN,
    5. any region, if `aws.endpoint` is set.

    Raises: ConfigurationError if no region is found, or if the region is not valid.
    """
    return region_and_source(properties, streams)[0]


def region_and_source(properties: Properties, streams: Iterable[str] = ()) -> tuple[str, str]:
    """Return the region as `region_of` does, and where it was found, in words for messages. Raises: the errors of `region_of`."""
    in_arns = sorted({region_of_arn(arn) for stream in streams if (arn := arn_of(stream))})
    region, source = properties.value(REGION), f"from {REGION.key}"
    if region is None and len(in_arns) == 1:
        region, source = in_arns[0], "from an ARN"
    if region is None:
        region, source = _region_of_environment(properties)
    if region is None and in_arns:
        region, source = in_arns[0], "from an ARN"
    if region is None and properties.is_set(ENDPOINT):
        # A signature needs a region, and other servers than AWS accept any.
        return _SIGNING_REGION, f"with {ENDPOINT.key} any region works"
    if region is None:
        raise ConfigurationError(
            REGION.key, None, "a region such as eu-west-1, here or in AWS_REGION, or streams as ARNs"
        )
    if not properties.is_set(ENDPOINT) and not _REGION.fullmatch(region):
        raise ConfigurationError(REGION.key, region, "a region such as eu-west-1")
    return region, source


def _region_of_environment(properties: Properties) -> tuple[str | None, str]:
    """Return the region of the environment, else of the profile, else None. Also return where it was found, in words for messages."""
    # As in boto3, the environment takes precedence over any profile, even over one that a property selects.
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := os.environ.get(name):
            return region, f"from {name}"
    if (profile := plain_profile(properties)) is not None:
        return profile.get("region"), "from the profile"
    from .sdk.session import profile_session

    found: str | None = profile_session(properties).get_config_variable("region")
    return found, "from the profile"


def host_header(url: SplitResult) -> str:
    """Return the host and port of a URL as they are signed and sent. A port that is the scheme's default is left out."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return host if url.port in (None, DEFAULT_PORTS[url.scheme]) else f"{host}:{url.port}"


def tls_name(url: SplitResult) -> str:
    """Return the name that the certificate of a URL's server must have. It is the host without the final dot of a full DNS name."""
    return (url.hostname or "").removesuffix(".")


def is_http_url(text: str) -> bool:
    """Return whether a text is an http or https URL with a host and without credentials."""
    try:
        parts = urlsplit(text)
        # A URL with credentials is refused, because they would be shown with the endpoint in messages.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in text and parts.port != 0
    except ValueError:  # The port is not a number, or a bracket is not closed.
        return False


# --- the hosts of Kinesis queues ------------------------------------------------------------------------------------------------------

QUEUE_CALLS = {
    "CreateQueue": "control",
    "DescribeQueue": "control",
    "ListQueues": "control",
    "ReceiveQueueRecords": "data",
    "AcknowledgeQueueRecords": "data",
    "UpdateQueueRecordsVisibility": "data",
    "ReceiveDeadLetterQueueRecords": "data",
    "AcknowledgeDeadLetterQueueRecords": "data",
    "UpdateDeadLetterQueueRecordsVisibility": "data",
    "RestoreDeadLetterQueueRecords": "data",
}
"""The calls about queues, and the kind of host that serves each."""
WITHOUT_HOSTS = ("aws-iso", "aws-iso-b")
"""Partitions in which a queue has no host of its own."""
_REGIONAL = r"https://kinesis(?P<fips>-fips)?\.(?P<rest>.+)"


def queue_url(kinesis_url: str, api: str, queue_arn: str | None, is_fips: bool = False) -> str:
    """Return the URL for a call about a Kinesis queue, by the rules of botocore 1.44.8.

    - `kinesis_url`: the URL for calls about streams. If it is not a host of AWS, it is returned unchanged.
    - `api`: the name of the call, one of `QUEUE_CALLS`.
    - `queue_arn`: the ARN of the queue, or None if the call names no queue.
    - `is_fips`: whether FIPS endpoints must be used. In us-gov, the host of `kinesis_url` is the same with and without FIPS.
    """
    # The SDK versions that the constraints allow do not know these calls. So their hosts are found here, and this package signs and sends
    # them.
    regional = re.fullmatch(_REGIONAL, kinesis_url)
    if regional is None:
        return kinesis_url
    has_host = queue_arn is not None and queue_arn.split(":")[1] not in WITHOUT_HOSTS
    of_queue = f"{queue_arn.rpartition('/')[2]}.{QUEUE_CALLS[api]}-" if queue_arn and has_host else ""
    return f"https://{of_queue}kinesis-queues{'-fips' if is_fips or regional['fips'] else ''}.{regional['rest']}"
