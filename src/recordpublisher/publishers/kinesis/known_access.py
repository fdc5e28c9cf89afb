"""known_access finds the credentials and hosts of a job's calls without the AWS SDK, which takes half a second of CPU to start.

It knows them for keys in the properties, in the environment or in a profile, and for an endpoint that is given or a
partition of `PARTITIONS`. Any other setting is left to the SDK, because an unknown variable or setting may change where
a call goes.
"""

import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from ..properties.groups.reading import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    HTTP_CLIENT,
    HTTP_PROTOCOL,
    PROFILE_NAME,
    SECRET_KEY,
    SESSION_TOKEN,
    uses_fan_out,
)
from ..properties.properties import Properties
from .endpoint import endpoint_of, is_http_url
from .plain_profile import is_header_text, plain_profile
from .proxies import has_proxies

PARTITIONS = {
    "aws": (r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d+", "amazonaws.com"),
    "aws-cn": (r"cn-[a-z]+-\d+", "amazonaws.com.cn"),
    "aws-eusc": (r"eusc-de-[a-z]+-\d+", "amazonaws.eu"),
    "aws-us-gov": (r"us-gov-[a-z]+-\d+", "amazonaws.com"),
}
"""The regions of each partition, and the suffix of its hosts."""
CALLS = {
    "GetRecords": "data",
    "GetShardIterator": "data",
    "PutRecords": "data",
    "ListShards": "control",
    "DescribeStreamSummary": "control",
}
"""The calls of most jobs, and the kind of the account's host that serves each for a stream that is given by its ARN."""
_ARN = r"arn:(?P<partition>[^:]+):kinesis:[^:]+:(?P<account>\d{12}):stream/.+"
_ENDPOINTS = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")
_PLAIN_VARIABLES = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_PAGER",
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED", "AWS_EXECUTION_ENV",
    "AWS_DEFAULT_OUTPUT", "AWS_STS_REGIONAL_ENDPOINTS", *_ENDPOINTS,
}  # fmt: skip
_WITHOUT_EFFECT = re.compile(r"AWS_(ENDPOINT_URL|LAMBDA|XRAY|CONTAINER)_.+")
"""Endpoints of other services, and variables that Lambda, ECS and EKS set.

A container's credentials are used only if no others are found.
"""


class Keys(msgspec.Struct):
    """Credentials that stay the same."""

    access_key: str
    secret_key: str
    token: str | None = None


class KnownAccess(NamedTuple):
    """The keys, region and endpoint of the calls to one region. If `endpoint` is None, it is the service's own."""

    keys: Keys
    region: str
    endpoint: str | None

    def url_of(self, stream_arn: str | None, api: str) -> str | None:
        """Return the URL of a call, or None if only the SDK can find it.

        `stream_arn` is the ARN by which the call names its stream; None if the call names no stream, or names it by its
        name.
        """
        if self.endpoint is not None:
            return self.endpoint if urlsplit(self.endpoint).path else f"{self.endpoint}/"
        arn = None if stream_arn is None else re.fullmatch(_ARN, stream_arn)
        for partition, (regions, suffix) in PARTITIONS.items():
            if not re.fullmatch(regions, self.region) or (stream_arn is None) != (arn is None):
                continue
            if arn is None:
                return f"https://kinesis.{self.region}.{suffix}/"
            if arn["partition"] == partition:
                return f"https://{arn['account']}.{CALLS[api]}-kinesis.{self.region}.{suffix}/"
        return None


def known_access(properties: Properties, region: str, role: str | None) -> KnownAccess | None:
    """Return the access to a region, or None if only the SDK can find it, or if the SDK is wanted, as fan-out needs it to subscribe.

    Raises: ConfigurationError if the endpoint is invalid.
    """
    endpoint = endpoint_of(properties, region)
    is_wanted = properties.value(HTTP_CLIENT) == "SDK" or properties.value(HTTP_PROTOCOL) == "HTTP2"
    is_wanted = is_wanted or uses_fan_out(properties)
    profile = None if role is not None or is_wanted or not _is_plain_environment() else plain_profile(properties)
    keys = None if profile is None else _keys(properties, profile)
    if endpoint is None and profile is not None:
        found = (*map(os.environ.get, _ENDPOINTS), profile.get("endpoint_url"))
        endpoint = next(filter(None, found), None)
        if endpoint is not None and not is_http_url(endpoint):
            return None
    if keys is None or not is_header_text(f"{keys.access_key}{keys.secret_key}{keys.token or ''}"):
        return None
    access = KnownAccess(keys, region, endpoint)
    return None if access.url_of(None, "ListShards") is None else access


def provider_name(properties: Properties) -> str:
    """Return the provider's name: as set, else BASIC if one of the basic keys is set (it then needs the other), else AUTO."""
    has_basic = properties.is_set(ACCESS_KEY_ID) or properties.is_set(SECRET_KEY)
    return (
        "BASIC" if has_basic and not properties.is_set(CREDENTIALS_PROVIDER) else properties.value(CREDENTIALS_PROVIDER)
    )


def _keys(properties: Properties, profile: dict[str, str]) -> Keys | None:
    """Return the keys that the SDK would find, or None.

    A profile that a property names takes precedence over the environment, and the environment over any other profile.
    """
    provider = provider_name(properties)
    if provider == "BASIC":
        given = tuple(properties.value(declared) for declared in (ACCESS_KEY_ID, SECRET_KEY, SESSION_TOKEN))
    elif provider == "ENV_VAR" or (
        provider == "AUTO" and "AWS_ACCESS_KEY_ID" in os.environ and not properties.is_set(PROFILE_NAME)
    ):
        given = tuple(map(os.environ.get, ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")))
    elif provider == "AUTO" or (provider == "PROFILE" and properties.is_set(PROFILE_NAME)):
        given = tuple(map(profile.get, ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")))
    else:
        return None
    access_key, secret_key, token = given
    return Keys(access_key, secret_key, token or None) if access_key and secret_key else None


def _is_plain_environment() -> bool:
    """Return whether only the usual variables are set, and no proxy or model of the user may change where calls go or who signs them."""
    aws = {name for name in os.environ if name.startswith("AWS_") and not _WITHOUT_EFFECT.fullmatch(name)}
    return aws <= _PLAIN_VARIABLES and not has_proxies() and not os.path.exists(os.path.expanduser("~/.aws/models"))
