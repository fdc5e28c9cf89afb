"""Finds where a job's calls go and which keys sign them, without the AWS SDK, which takes half a second of CPU to start.

This works for keys in the properties, in the environment or in a profile, and for an endpoint that is given or a partition of `PARTITIONS`.
With any other setting the SDK is used, because an unknown variable or setting may change where a call goes. What the SDK finds is in
`sdk/credentials.py`.
"""

from __future__ import annotations

import functools
import os
import re
import ssl
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from ..errors import ConfigurationError
from ..properties.properties import Properties
from ..properties.reading_properties import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    ENDPOINT,
    HTTP_CLIENT,
    HTTP_PROTOCOL,
    PROFILE_NAME,
    PROFILE_PATH,
    REGION,
    REGION_ENDPOINT,
    SECRET_KEY,
    SESSION_TOKEN,
    uses_fan_out,
)
from ..shards import arn_of, region_of_arn
from .ports import is_header_text

PARTITIONS = {
    "aws": (r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d+", "amazonaws.com"),
    "aws-cn": (r"cn-[a-z]+-\d+", "amazonaws.com.cn"),
    "aws-eusc": (r"eusc-de-[a-z]+-\d+", "amazonaws.eu"),
    "aws-us-gov": (r"us-gov-[a-z]+-\d+", "amazonaws.com"),
}
"""The AWS partitions: a pattern of their regions, and the suffix of their hosts."""
CALLS = {
    "GetRecords": "data",
    "GetShardIterator": "data",
    "PutRecords": "data",
    "ListShards": "control",
    "DescribeStreamSummary": "control",
    "DescribeStreamConsumer": "control",
}
"""The calls of most jobs. If the stream is given by its ARN, a call goes to a host of the account; the value is the kind of that host."""
_STREAM_ARN = r"arn:(?P<partition>[^:]+):kinesis:[^:]+:(?P<account>\d{12}):stream/.+"
_ENDPOINTS = ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL")
_PLAIN_VARIABLES = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_PAGER",
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED", "AWS_EXECUTION_ENV",
    "AWS_DEFAULT_OUTPUT", "AWS_STS_REGIONAL_ENDPOINTS", *_ENDPOINTS,
}  # fmt: skip
_WITHOUT_EFFECT = re.compile(r"AWS_(ENDPOINT_URL|LAMBDA|XRAY|CONTAINER)_.+")
"""Variables that do not change the calls to Kinesis: endpoints of other services, and what Lambda, ECS and EKS set.

A container's credentials are used only if no others are found.
"""


def known_access(properties: Properties, region: str, role: str | None) -> KnownAccess | None:
    """Return the access to a region, or None if the SDK must find it.

    The SDK is also used if a property asks for it, and for enhanced fan-out, because only the SDK can subscribe.

    Raises: ConfigurationError if the endpoint is invalid.
    """
    endpoint = endpoint_of(properties, region)
    # 1. Use the SDK if a property asks for it, or if a setting that this module does not know may change the calls.
    is_wanted = properties.value(HTTP_CLIENT) == "SDK" or properties.value(HTTP_PROTOCOL) == "HTTP2"
    if is_wanted or uses_fan_out(properties) or role is not None or not _is_plain_environment():
        return None
    # 2. Find the keys.
    profile = plain_profile(properties)
    keys = None if profile is None else _keys(properties, profile)
    if profile is None or keys is None:
        return None
    if not is_header_text(f"{keys.access_key}{keys.secret_key}{keys.token or ''}"):
        return None  # The SDK's transport checks these keys too, and its error says what is wrong with them.
    # 3. Find the endpoint. A property takes precedence over the environment, and the environment over the profile.
    if endpoint is None:
        found = (*map(os.environ.get, _ENDPOINTS), profile.get("endpoint_url"))
        endpoint = next(filter(None, found), None)
        if endpoint is not None and not is_http_url(endpoint):
            return None
    access = KnownAccess(keys, region, endpoint)
    return None if access.url_of(None, "ListShards") is None else access


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
        arn = None if stream_arn is None else re.fullmatch(_STREAM_ARN, stream_arn)
        for partition, (regions, suffix) in PARTITIONS.items():
            # If the ARN has another form, or belongs to another partition than the region, the SDK's endpoint rules decide.
            if not re.fullmatch(regions, self.region) or (stream_arn is None) != (arn is None):
                continue
            if arn is None:
                return f"https://kinesis.{self.region}.{suffix}/"
            if arn["partition"] == partition:
                return f"https://{arn['account']}.{CALLS[api]}-kinesis.{self.region}.{suffix}/"
        return None


class Keys(msgspec.Struct):
    """Credentials that do not expire."""

    access_key: str
    secret_key: str
    token: str | None = None


def provider_name(properties: Properties) -> str:
    """Return the name of the credentials provider: the one that is set, else BASIC if one of the basic keys is set (the other is then
    required), else AUTO.
    """
    has_basic = properties.is_set(ACCESS_KEY_ID) or properties.is_set(SECRET_KEY)
    return (
        "BASIC" if has_basic and not properties.is_set(CREDENTIALS_PROVIDER) else properties.value(CREDENTIALS_PROVIDER)
    )


def _keys(properties: Properties, profile: dict[str, str]) -> Keys | None:
    """Return the keys that the SDK would find, or None if only the SDK can find them."""
    # A profile that a property names takes precedence over the environment, and the environment over any other profile.
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
    """Return whether the environment has only the usual variables: no proxy, and no model of the user, may change where calls go or who
    signs them.
    """
    aws = {name for name in os.environ if name.startswith("AWS_") and not _WITHOUT_EFFECT.fullmatch(name)}
    return aws <= _PLAIN_VARIABLES and not has_proxies() and not os.path.exists(os.path.expanduser("~/.aws/models"))


# --- endpoint and region ------------------------------------------------------------------------------------------------------------

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
_SIGNING_REGION = "us-east-1"
DEFAULT_PORTS = {"http": 80, "https": 443}


def endpoint_of(properties: Properties, region: str | None = None) -> str | None:
    """Return the endpoint of a region: the one that is set for the region, else the one set for all, else None for the service's own.

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

    It is the first of these: the region that is set, the region that all ARNs share, the region of the environment or the profile, and the
    region of the first ARN. With `aws.endpoint` any region works.

    Raises: ConfigurationError if there is none, or it is not a valid region.
    """
    return region_and_source(properties, streams)[0]


def region_and_source(properties: Properties, streams: Iterable[str] = ()) -> tuple[str, str]:
    """Return the region of `region_of`, and, for messages, where it was found. Raises: the errors of `region_of`."""
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
    """Return the region of the environment, else of the profile, or None; and, for messages, where it was found."""
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
    """Return the host and port of a URL as they are signed and sent. The scheme's default port is left out."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    return host if url.port in (None, DEFAULT_PORTS[url.scheme]) else f"{host}:{url.port}"


def tls_name(url: SplitResult) -> str:
    """Return the name that a URL's certificate must have: its host without the final dot, which in DNS marks a full name."""
    return (url.hostname or "").removesuffix(".")


def is_http_url(text: str) -> bool:
    """Return whether a text is the URL of an http or https server."""
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
    """Return the URL of a call about a queue, by the rules of botocore 1.44.8.

    - `kinesis_url`: the URL of other calls to Kinesis. If it is not a host of AWS, it is also the result.
    - `is_fips`: whether FIPS is set, which in us-gov does not change `kinesis_url`.
    """
    # The SDK versions that the constraints allow do not know these calls. So their hosts are found here, and this package signs and sends
    # them.
    regional = re.fullmatch(_REGIONAL, kinesis_url)
    if regional is None:
        return kinesis_url
    has_host = queue_arn is not None and queue_arn.split(":")[1] not in WITHOUT_HOSTS
    of_queue = f"{queue_arn.rpartition('/')[2]}.{QUEUE_CALLS[api]}-" if queue_arn and has_host else ""
    return f"https://{of_queue}kinesis-queues{'-fips' if is_fips or regional['fips'] else ''}.{regional['rest']}"


# --- a profile of the AWS configuration files ---------------------------------------------------------------------------------------

_PROFILE_KEYS = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
_PROFILE_SETTINGS = _PROFILE_KEYS | {"region", "output", "endpoint_url"}
_SECTION_NAME = re.compile(r"((profile|sso-session|services) )?[\w.@+-]+", re.ASCII)
"""Section names that are read in the same way here and by the SDK. The SDK splits other names as a shell does, and takes any section
that begins with `profile` as a profile.
"""


def plain_profile(properties: Properties) -> dict[str, str] | None:
    """Return the settings of the profile, or None if only the SDK can find out what the profile means.

    Keys come from the credentials file if it has any for the profile, else from the configuration file.
    """
    chosen = properties.value(PROFILE_NAME) or os.environ.get("AWS_PROFILE")
    name = "default" if chosen is None else chosen
    shared = properties.value(PROFILE_PATH) or os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    try:
        given = _section(shared, name), _section(config, f"profile {name}", *["default"][: name == "default"])
    except (ValueError, OSError):  # The file cannot be read, or is not a file of settings.
        return None
    credentials, rest = ({} if settings is None else settings for settings in given)
    is_missing = given == (None, None) and chosen is not None
    if is_missing or not (credentials.keys() | rest.keys()) <= _PROFILE_SETTINGS or "AWS_DEFAULT_PROFILE" in os.environ:
        return None
    keys = credentials if credentials.keys() & _PROFILE_KEYS else rest
    return {name: value for name, value in (rest | credentials).items() if name not in _PROFILE_KEYS or name in keys}


def _section(path: str, *names: str) -> dict[str, str] | None:
    """Return the settings of the section with one of these names, or None if there is no such section.

    Raises: ValueError if the SDK could read the file in another way; OSError if it cannot be read.
    """
    if os.path.expandvars(path) != path:
        raise ValueError(path)
    # `Path.expanduser` is not used, because it raises an error if there is no home, as in some containers.
    file = Path(os.path.expanduser(path))
    if not file.is_file():
        return None
    from configparser import Error, RawConfigParser

    parser = RawConfigParser()
    try:
        parser.read_string(file.read_text())
    except Error as error:
        raise ValueError(path) from error
    found = [name for name in names if name in parser]
    settings = dict(parser[found[0]]) if found else None
    values = [value for section in parser.sections() for value in parser[section].values()]
    nested = [line for value in values if value.startswith("\n") for line in value.split("\n") if line.strip()]
    is_plain = all(map(_SECTION_NAME.fullmatch, parser.sections())) and len(found) < 2 and not parser.defaults()
    if not is_plain or not all("=" in line for line in nested) or "\n" in "".join((settings or {}).values()):
        raise ValueError(path)
    return settings


# --- proxies ------------------------------------------------------------------------------------------------------------------------

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def has_proxies() -> bool:
    """Return whether a proxy is set for any host."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # Imported here because it takes 5 ms of CPU.

    return not getproxies().keys().isdisjoint({"http", "https", "all"})


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy through which the SDK calls `url`, or None if it calls `url` directly, for example because of
    NO_PROXY.
    """
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy.removeprefix('//')}"


# --- trusted CAs ----------------------------------------------------------------------------------------------------------------------

CA_BUNDLE = "AWS_CA_BUNDLE"


def client_tls(ca_bundle: str | None, url: str, protocol: str | None = None) -> ssl.SSLContext:
    """Return the TLS context with which a client checks the certificate of `url`.

    - `ca_bundle`: the file of trusted CAs, or None for the SDK's list. For an http URL no file is read.
    - `protocol`: the protocol that the handshake must agree on (ALPN).
    """
    # Since Python 3.13, Python's default context rejects certificates that boto3 accepts.
    if not _is_tls(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _context_with(ca_bundle or _sdk_list(), protocol)


def ca_bundle_path(session: Any) -> str | None:
    """Return the path of the trusted CA file of an SDK session, or None for the SDK's own list.

    Raises: ConfigurationError if the file cannot be used.
    """
    # The file is checked here, because the SDK reads it only at the first call, and its error neither names the file nor says that a retry
    # cannot help.
    return _check_ca_bundle(session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"))


def environment_ca_bundle(url: str) -> str | None:
    """Return the path of the trusted CA file that the environment sets for calls to `url`, or None. Profiles are not considered.

    For an http URL the file must exist, but is not read.

    Raises: ConfigurationError if the file cannot be used.
    """
    return _check_ca_bundle(os.environ.get(CA_BUNDLE) or os.environ.get("REQUESTS_CA_BUNDLE"), is_read=_is_tls(url))


def _check_ca_bundle(path: str | None, *, is_read: bool = True) -> str | None:
    if path:
        try:
            _context_with(path, None) if is_read else os.stat(path)
        except OSError as error:  # TLS errors are also OSErrors
            valid = "a file of certificates in PEM form; without it, the SDK's own list is used"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None


def _is_tls(url: str) -> bool:
    return url.startswith("https:")


@functools.cache
def _context_with(path: str, protocol: str | None) -> ssl.SSLContext:
    """Return the TLS context that trusts the CAs of a file. One is made for each file and process, because reading a system's list takes
    20 ms of CPU.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(path)
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    return context


def _sdk_list() -> str:
    """Return the path of the CA file of the package certifi, or else of the SDK.

    If the file is found next to one of these packages, the package is not imported.
    """
    specs = [spec for spec in map(find_spec, ("certifi", "botocore")) if spec is not None and spec.origin is not None]
    beside = Path(specs[0].origin or "").with_name("cacert.pem")
    if beside.is_file():
        return str(beside)
    from certifi import where  # This is a Linux distribution's certifi, which names the list of the operating system.

    return where()
