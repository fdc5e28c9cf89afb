"""SignedPost signs a frequent request with Signature Version 4. The constant parts are computed once."""

import hmac
import posixpath
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol
from urllib.parse import quote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.password_masking import MASK
from recordpublisher.publishers.properties.groups.reading import CREDENTIALS_PROVIDER

from ..endpoint import host_header

SERVICE = "kinesis"
JSON = "application/x-amz-json-1.1"
API_VERSION = "Kinesis_20131202"


def json_headers(api: str) -> dict[str, str]:
    """Return the headers of a call to Kinesis that the SDK does not build."""
    return {"User-Agent": "recordpublisher", "X-Amz-Target": f"{API_VERSION}.{api}", "Content-Type": JSON}


def _normalized(path: str) -> str:
    """Return a path as it is signed, without empty segments and without the segments `.` and `..`."""
    normal = posixpath.normpath(f"/{path}").lstrip("/")
    return f"/{normal}/" if normal and path.endswith("/") else f"/{normal}"


class Credentials(Protocol):
    """The keys that sign a request: frozen credentials of the SDK, or `Keys`."""

    access_key: str
    secret_key: str
    token: str | None


class SignedPost:
    """POST requests to one URL of Kinesis. `build` returns the bytes to send, with the same signature as the SDK's, in a tenth of its time.

    `headers` must have `Content-Type` and `X-Amz-Target`. These are signed, as are host, time and session token. Other
    headers are sent unsigned. The signing key (four rounds of HMAC) is cached for the day and the secret.
    """

    def __init__(self, url: str, headers: Mapping[str, str], region: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self._headers = headers
        self._region = region
        self._key = ("", ""), b""
        self._host = host_header(parts)
        self._fixed = f"POST\n{quote(_normalized(parts.path), safe='/~')}\n\n"
        sent = {"Host": self._host, **headers, "Accept-Encoding": "identity"}
        self._start = f"POST {parts.path or '/'} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items())

    def build(self, body: bytes, credentials: Credentials, now: float) -> bytes:
        """Return the request, head and body, signed at `now` (epoch seconds).

        Raises: ConfigurationError if the access key or the token has control characters.
        """
        if not (credentials.access_key + (credentials.token or "")).isprintable():
            raise ConfigurationError(
                CREDENTIALS_PROVIDER.key, MASK, "an access key and a token without control characters"
            )
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        signed = {
            "content-type": self._headers["Content-Type"],
            "host": self._host,
            "x-amz-date": at,
            **({"x-amz-security-token": credentials.token} if credentials.token else {}),
            "x-amz-target": self._headers["X-Amz-Target"],
        }
        names = ";".join(signed)
        lines = "".join([f"{name}:{' '.join(value.split())}\n" for name, value in signed.items()])
        canonical = f"{self._fixed}{lines}\n{names}\n{sha256(body).hexdigest()}"
        scope = f"{at[:8]}/{self._region}/{SERVICE}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(credentials.secret_key, at[:8]), text.encode(), "sha256").hex()
        token = f"X-Amz-Security-Token: {credentials.token}\r\n" if credentials.token else ""
        head = (
            f"{self._start}X-Amz-Date: {at}\r\n{token}"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _signing_key(self, secret: str, day: str) -> bytes:
        if self._key[0] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = ((secret, day), key)
        return self._key[1]
