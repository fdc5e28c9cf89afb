"""Decides whether our own client can make a job's calls, and finds the proxy and the trusted CAs of calls, without the AWS SDK.

The SDK takes half a second of CPU to start. It is not needed for keys in the properties, in the environment or in a
profile, with an endpoint that is given or a partition of `PARTITIONS`. Any other setting is left to the SDK, because an
unknown variable or setting may change where a call goes. The SDK's own part is in `sdk/credentials.py`.
"""

from __future__ import annotations

import functools
import os
import re
import ssl
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..properties.properties import Properties
from ..properties.reading_properties import (
    HTTP_CLIENT,
    HTTP_PROTOCOL,
    uses_fan_out,
)
from .endpoints import CALLS, PARTITIONS, endpoint_of, is_http_url
from .plain_credentials import Keys, keys_of, plain_profile
from .ports import is_header_text

_STREAM_ARN = r"arn:(?P<partition>[^:]+):kinesis:[^:]+:(?P<account>\d{12}):stream/.+"
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


def known_access(properties: Properties, region: str, role: str | None) -> KnownAccess | None:
    """Return the access to a region, or None if the SDK must find it, or is wanted: fan-out needs it to subscribe.

    Raises: ConfigurationError if the endpoint is invalid.
    """
    endpoint = endpoint_of(properties, region)
    # 1. Leave the job to the SDK if it is wanted, or if a setting that we do not know may change the calls.
    is_wanted = properties.value(HTTP_CLIENT) == "SDK" or properties.value(HTTP_PROTOCOL) == "HTTP2"
    if is_wanted or uses_fan_out(properties) or role is not None or not _is_plain_environment():
        return None
    # 2. Find the keys.
    profile = plain_profile(properties)
    keys = None if profile is None else keys_of(properties, profile)
    if profile is None or keys is None:
        return None
    if not is_header_text(f"{keys.access_key}{keys.secret_key}{keys.token or ''}"):
        return None  # The SDK's transport checks such keys as well, and its error says what is wrong with them.
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
            # An ARN in another form, or of another partition than the region, is left to the SDK's endpoint rules.
            if not re.fullmatch(regions, self.region) or (stream_arn is None) != (arn is None):
                continue
            if arn is None:
                return f"https://kinesis.{self.region}.{suffix}/"
            if arn["partition"] == partition:
                return f"https://{arn['account']}.{CALLS[api]}-kinesis.{self.region}.{suffix}/"
        return None


def _is_plain_environment() -> bool:
    """Return whether only the usual variables are set, and no proxy or model of the user may change where calls go or who signs them."""
    aws = {name for name in os.environ if name.startswith("AWS_") and not _WITHOUT_EFFECT.fullmatch(name)}
    return aws <= _PLAIN_VARIABLES and not has_proxies() and not os.path.exists(os.path.expanduser("~/.aws/models"))


# --- proxies ------------------------------------------------------------------------------------------------------------------------

_HAS_SYSTEM_SETTINGS = sys.platform in ("darwin", "win32")


def has_proxies() -> bool:
    """Return whether a proxy is set for any host."""
    if not _HAS_SYSTEM_SETTINGS and not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    from urllib.request import getproxies  # Imported here because it takes 5 ms of CPU.

    return not getproxies().keys().isdisjoint({"http", "https", "all"})


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy through which the SDK calls `url`, or None if it calls `url` directly, as with NO_PROXY."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy.removeprefix('//')}"


# --- trusted CAs ----------------------------------------------------------------------------------------------------------------------

CA_BUNDLE = "AWS_CA_BUNDLE"


def client_tls(ca_bundle: str | None, url: str, protocol: str | None = None) -> ssl.SSLContext:
    """Return the context that checks the certificate of `url`, by this file, else by the SDK's list. For http no file is read.

    `protocol` is the protocol to agree on in the handshake.
    """
    # Since Python 3.13, Python's default context rejects certificates that boto3 accepts.
    if not _is_tls(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _context_with(ca_bundle or _sdk_list(), protocol)


def ca_bundle_path(session: Any) -> str | None:
    """Return the trusted CA file of an SDK session, or None for the SDK's own list.

    Raises: ConfigurationError if the file cannot be used.
    """
    # The SDK reads the file at the first call. Its error neither names the file nor says that a retry cannot help.
    return _check_ca_bundle(session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"))


def environment_ca_bundle(url: str) -> str | None:
    """Return the trusted CA file that the environment sets for calls to `url`, or None. No profile is read.

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
    """Return the context that trusts the CAs of a file. It is made once for each process: a system's list takes 20 ms of CPU."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(path)
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    return context


def _sdk_list() -> str:
    """Return the path of the CA file of the package certifi, else of the SDK's.

    Neither package is imported if its file is found next to it.
    """
    specs = [spec for spec in map(find_spec, ("certifi", "botocore")) if spec is not None and spec.origin is not None]
    beside = Path(specs[0].origin or "").with_name("cacert.pem")
    if beside.is_file():
        return str(beside)
    from certifi import where  # This is a Linux distribution's certifi, which names the list of the operating system.

    return where()
