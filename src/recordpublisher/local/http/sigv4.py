"""Checks Signature Version 4; only when the endpoint was started with credentials."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from ..api_errors import ApiError

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)


def check_signature(headers: Mapping[str, str], body: bytes, secrets: Mapping[str, str]) -> None:
    """Raise the service's error for a request that none of `secrets` (by access key id) has signed."""
    found = _AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if found is None:
        raise ApiError("MissingAuthenticationTokenException", "Missing Authentication Token")
    secret = secrets.get(found["key"])
    if secret is None:
        raise ApiError("UnrecognizedClientException", "The security token included in the request is invalid.")
    expected = _sign(headers, body, found["headers"].split(";"), found["scope"], secret)
    if not hmac.compare_digest(expected, found["signature"]):
        raise ApiError(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )


def _sign(headers: Mapping[str, str], body: bytes, signed: list[str], scope: str, secret: str) -> str:
    canonical_headers = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in signed)
    payload_hash = hashlib.sha256(body).hexdigest()
    canonical = f"POST\n/\n\n{canonical_headers}\n{';'.join(signed)}\n{payload_hash}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{headers.get('X-Amz-Date', '')}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()
