"""Decides whether our own client can make a job's calls, without the AWS SDK.

The SDK takes half a second of CPU to start. It is not needed if both are found without it:

- the keys: in the properties, in the environment or in a profile (`credentials_without_sdk.py`),
- the endpoint: it is given, or the region is in a partition of `endpoints.py`.

With any other setting the SDK is used, because an unknown variable or setting may change where a call goes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ..properties.fan_out_properties import HTTP_PROTOCOL
from ..properties.properties import Properties
from ..properties.reading_properties import HTTP_CLIENT, uses_fan_out
from .credentials_without_sdk import Keys, keys_of, plain_profile
from .endpoints import HOST_KINDS, PARTITIONS, endpoint_of, is_http_url
from .ports import is_header_text
from .proxies import has_proxies

_STREAM_ARN = r"arn:(?P<partition>[^:]+):kinesis:[^:]+:(?P<account>\d{12}):stream/.+"
_ENDPOINTS = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")
_PLAIN_VARIABLES = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_PAGER",
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED", "AWS_EXECUTION_ENV",
    "AWS_DEFAULT_OUTPUT", "AWS_STS_REGIONAL_ENDPOINTS", *_ENDPOINTS,
}  # fmt: skip
_WITHOUT_EFFECT = re.compile(r"AWS_(ENDPOINT_URL|LAMBDA|XRAY|CONTAINER)_.+")
"""Matches variables that do not change the calls to Kinesis: endpoints of other services, and variables that Lambda, ECS and EKS set.

They include those for a container's credentials. These are used only if no others are found.
"""


def access_without_sdk(properties: Properties, region: str, role: str | None) -> AccessWithoutSdk | None:
    """Return the keys and the endpoint for calls to a region, or None if the SDK must make the calls.

    The SDK must make them if only it can find the keys or the endpoint, if a property asks for it, or if a role is given. Enhanced fan-out
    also needs it, because only the SDK can subscribe.

    Raises: ConfigurationError if the endpoint is invalid.
    """
    endpoint = endpoint_of(properties, region)
    # 1. Use the SDK if a property asks for it, or if a setting that this module does not know may change the calls.
    is_wanted = properties.value(HTTP_CLIENT) == "SDK" or properties.value(HTTP_PROTOCOL) == "HTTP2"
    if is_wanted or uses_fan_out(properties) or role is not None or not _is_plain_environment():
        return None
    # 2. Find the keys.
    profile = plain_profile(properties)
    keys = None if profile is None else keys_of(properties, profile)
    if profile is None or keys is None:
        return None
    if not is_header_text(f"{keys.access_key}{keys.secret_key}{keys.token or ''}"):
        return None  # The SDK's transport checks these keys too, and its error says what is wrong with them.
    # 3. Find the endpoint. A property takes precedence over the environment, and the environment over the profile.
    if endpoint is None:
        endpoint = _endpoint_outside(profile)
        if endpoint is not None and not is_http_url(endpoint):
            return None
    access = AccessWithoutSdk(keys, region, endpoint)
    return None if access.url_of(None, "ListShards") is None else access


class AccessWithoutSdk(NamedTuple):
    """The keys, region and endpoint of the calls to one region. If `endpoint` is None, the calls go to the service's own hosts."""

    keys: Keys
    region: str
    endpoint: str | None

    def url_of(self, stream_arn: str | None, api: str) -> str | None:
        """Return the URL of a call, or None if only the SDK can find it.

        - `stream_arn`: the ARN of the stream in the call's parameters, or None if they have none.
        """
        if self.endpoint is not None:
            return self.endpoint if urlsplit(self.endpoint).path else f"{self.endpoint}/"
        arn = None if stream_arn is None else re.fullmatch(_STREAM_ARN, stream_arn)
        for partition, (regions, suffix) in PARTITIONS.items():
            # If the ARN has another form, or belongs to another partition than the region, the SDK's endpoint rules decide.
            if not re.fullmatch(regions, self.region) or (stream_arn is None) != (arn is None):
                continue
            if arn is None:
                return f"https://kinesis.{self.region}.{suffix}/"
            if arn["partition"] == partition:
                return f"https://{arn['account']}.{HOST_KINDS[api]}-kinesis.{self.region}.{suffix}/"
        return None


def own_endpoint(properties: Properties, region: str) -> str | None:
    """Return the endpoint that a property, the environment or the profile sets for Kinesis. Return None if none is set.

    A profile that only the SDK can read counts as one without an endpoint.
    """
    return endpoint_of(properties, region) or _endpoint_outside(plain_profile(properties) or {})


def _endpoint_outside(profile: Mapping[str, str]) -> str | None:
    found = (*map(os.environ.get, _ENDPOINTS), profile.get("endpoint_url"))
    return next(filter(None, found), None)


def _is_plain_environment() -> bool:
    """Return whether no proxy, no unusual AWS variable, and no model added to the SDK can change where calls go or who signs them."""
    aws = {name for name in os.environ if name.startswith("AWS_") and not _WITHOUT_EFFECT.fullmatch(name)}
    return aws <= _PLAIN_VARIABLES and not has_proxies() and not os.path.exists(os.path.expanduser("~/.aws/models"))
