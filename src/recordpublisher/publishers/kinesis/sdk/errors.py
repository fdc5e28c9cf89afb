"""translate_sdk_error maps errors of the AWS SDK, and of the HTTP clients that come with it, to classes of `errors.py`."""

import json

import aiohttp
import urllib3.exceptions
from aiohttp.http_exceptions import HttpProcessingError
from botocore import exceptions as sdk
from botocore.eventstream import ParserError as FrameError
from botocore.parsers import ResponseParserError

from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    KinesisError,
    RecordPublisherError,
)
from recordpublisher.publishers.properties.groups.reading import ENDPOINT

from ..error_mapping import TO_HAVE_CREDENTIALS, NoCredentialsError, error_for_code, error_of_transport

NO_CREDENTIALS = (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.ProfileNotFound, sdk.NoAuthTokenError)
REFRESH_FAILED = (
    sdk.CredentialRetrievalError,
    sdk.MetadataRetrievalError,
    sdk.TokenRetrievalError,
    json.JSONDecodeError,
)
"""Errors of a renewal. The SDK does not catch the JSONDecodeError of a `credential_process` when it renews credentials."""
TRANSPORT = (
    sdk.HTTPClientError, sdk.ConnectionError, aiohttp.ClientError, HttpProcessingError, urllib3.exceptions.HTTPError,
    sdk.IncompleteReadError, FrameError, ResponseParserError,
)  # fmt: skip
"""Errors of the network, and of responses that cannot be read.

They come from the SDK, from aiohttp (which reads event streams), and from urllib3 (in an SDK of the user's own).
"""


def translate_sdk_error(api: str, error: Exception) -> RecordPublisherError | None:
    """Return the error of `errors.py`, or None for an error that is not the SDK's."""
    if isinstance(error, sdk.ClientError):
        return _from_response(api, error)
    if isinstance(error, NO_CREDENTIALS):
        is_missing = isinstance(error, sdk.NoCredentialsError)
        other = ConfigurationError("AWS credentials", None, TO_HAVE_CREDENTIALS, reason=f"{api}: {error}")
        return NoCredentialsError() if is_missing else other
    if isinstance(error, sdk.EndpointProviderError):
        return ConfigurationError(ENDPOINT.key, None, ENDPOINT.valid, reason=f"{api}: {error}")
    if isinstance(error, (*TRANSPORT, *REFRESH_FAILED)):
        return error_of_transport(api, error)
    if isinstance(error, sdk.BotoCoreError):
        return FatalKinesisError(api, type(error).__name__, str(error))
    return None


def _from_response(api: str, error: sdk.ClientError) -> KinesisError:
    response = error.response
    details = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    # A call to STS that our call has caused has its own operation name.
    return error_for_code(error.operation_name or api, details.get("Code", ""), details.get("Message", ""), status)
