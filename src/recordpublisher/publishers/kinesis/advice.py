"""What a person can do about an error code: the second half of an error's message."""

from __future__ import annotations

from ..errors import FatalKinesisError, KinesisError
from ..properties.table import CREDENTIALS_PROVIDER, ENDPOINT, INITIAL_POSITION

_CREDENTIALS = f"check the credentials ({CREDENTIALS_PROVIDER.key} and its keys)"
_ACCESS = "allow this action for the identity in use (IAM policy, resource policy of the stream or consumer)"
_CLOCK = "this machine's clock is off by more than five minutes: set it"
ADVICE = {
    "AccessDeniedException": _ACCESS,
    "AccessDenied": _ACCESS,
    "UnrecognizedClientException": f"the access key is unknown: {_CREDENTIALS}",
    "InvalidClientTokenId": f"the access key is unknown: {_CREDENTIALS}",
    "MissingAuthenticationTokenException": f"the request was not signed: {_CREDENTIALS}",
    "IncompleteSignature": f"the signature is not complete: {_CREDENTIALS}",
    "InvalidSignatureException": f"the secret key is wrong, or this machine's clock is off: {_CREDENTIALS}",
    "SignatureDoesNotMatch": f"the secret key is wrong, or this machine's clock is off: {_CREDENTIALS}",
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "ExpiredTokenException": f"the session token has expired: {_CREDENTIALS}, or use a provider that renews them",
    "ExpiredToken": f"the session token has expired: {_CREDENTIALS}, or use a provider that renews them",
    "OptInRequired": "this account must subscribe to Kinesis in this region first",
    "KMSAccessDeniedException": "allow kms:Decrypt on the stream's key for the identity in use",
    "KMSDisabledException": "enable the stream's KMS key",
    "KMSInvalidStateException": "bring the stream's KMS key into the Enabled state",
    "KMSNotFoundException": "the stream's KMS key or its alias is gone: restore it or give the stream another key",
    "KMSOptInRequired": "this account must subscribe to KMS first",
    "InvalidArgumentException": (
        f"an argument is not valid for this stream; after a stream was deleted and made again old positions are: "
        f"start without the old state, from {INITIAL_POSITION.key}"
    ),
    "ValidationException": "check the names and ARNs of streams and consumers in the properties",
    "UnknownOperationException": f"what answers there is not Kinesis, or does not know this call: check {ENDPOINT.key}",
}
"""By error code: what is fatal, and what a person does about it."""
OTHERWISE = "a retry cannot help; the service's documentation of this call tells what the code means"


def advice_for(code: str, kind: type[KinesisError]) -> str:
    """`; do this` for an error code that is fatal. What a retry or a closer look can mend needs no advice."""
    return f"; {ADVICE.get(code, OTHERWISE)}" if issubclass(kind, FatalKinesisError) else ""
