import asyncio
import re
import socket
import ssl

import aiohttp
import pytest
import urllib3
from aiohttp.http_exceptions import TransferEncodingError
from botocore import eventstream
from botocore import exceptions as sdk

from recordpublisher.publishers import errors
from recordpublisher.publishers.kinesis.error_mapping import (
    DEFAULT_HINT,
    HINTS,
    error_for_code,
    translate,
    translate_errors,
)


def client_error(code, status=400, message="because", operation="GetRecords"):
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return sdk.ClientError(response, operation)


CODES = [
    ("ProvisionedThroughputExceededException", 400, errors.ThrottledError),
    ("LimitExceededException", 400, errors.ThrottledError),
    ("KMSThrottlingException", 400, errors.ThrottledError),
    ("ThrottlingException", 400, errors.ThrottledError),
    ("UnknownCode", 429, errors.ThrottledError),
    ("InternalFailureException", 500, errors.TransientError),
    ("ServiceUnavailable", 503, errors.TransientError),
    ("500", 500, errors.TransientError),
    ("", 502, errors.TransientError),
    ("408", 408, errors.TransientError),
    ("ExpiredIteratorException", 400, errors.ExpiredIteratorError),
    ("ResourceInUseException", 400, errors.ResourceInUseError),
    ("ResourceNotFoundException", 400, errors.ResourceNotFoundError),
    ("KMSDisabledException", 400, errors.FatalKinesisError),
    ("KMSNotFoundException", 400, errors.FatalKinesisError),
    ("AccessDeniedException", 400, errors.FatalKinesisError),
    ("InvalidArgumentException", 400, errors.FatalKinesisError),
    ("ExpiredTokenException", 400, errors.FatalKinesisError),
    ("UnrecognizedClientException", 400, errors.FatalKinesisError),
    ("UnknownCode", 400, errors.FatalKinesisError),
]


@pytest.mark.parametrize(("code", "status", "kind"), CODES)
def test_error_codes_are_classified(code, status, kind):
    ours = translate("GetRecords", client_error(code, status))
    assert type(ours) is kind
    assert ours.api == "GetRecords"


NETWORK = [
    aiohttp.ClientPayloadError("cut"),
    aiohttp.SocketTimeoutError("slow"),
    aiohttp.ServerDisconnectedError(),
    sdk.EndpointConnectionError(endpoint_url="http://h"),
    sdk.ConnectTimeoutError(endpoint_url="http://h"),
    sdk.ReadTimeoutError(endpoint_url="http://h"),
    sdk.ConnectionClosedError(endpoint_url="http://h"),
    ConnectionResetError("reset"),
    asyncio.IncompleteReadError(b"half", 9),
    TransferEncodingError("not a chunk"),
    urllib3.exceptions.ProtocolError("broken"),
    urllib3.exceptions.ReadTimeoutError(None, "http://h", "slow"),
    urllib3.exceptions.IncompleteRead(1, 2),
    sdk.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    sdk.ResponseStreamingError(error="broken"),
    TimeoutError(),
    eventstream.ChecksumMismatch(1, 2),
    eventstream.InvalidPayloadLength(99),
    sdk.MetadataRetrievalError(error_msg="no response"),
]


@pytest.mark.parametrize("error", NETWORK, ids=lambda error: type(error).__name__)
def test_r4_every_network_error_is_transient(error):
    ours = translate("GetRecords", error)
    assert type(ours) is errors.TransientError
    assert ours.code == type(error).__name__


def test_a_bad_certificate_is_fatal():
    wrapped = sdk.SSLError(endpoint_url="https://h", error=ssl.SSLCertVerificationError("self signed"))
    assert type(translate("GetRecords", wrapped)) is errors.FatalKinesisError


def test_an_endpoint_without_tls_is_told_also_by_an_error_of_aiohttp_which_has_no_reason():
    cause = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    cause.reason = "WRONG_VERSION_NUMBER"
    key = aiohttp.client_reqrep.ConnectionKey("h", 443, True, True, None, None, None)
    inner = aiohttp.ClientConnectorSSLError(key, cause)
    inner.__cause__ = cause
    ours = translate("GetRecords", sdk.SSLError(endpoint_url="https://h", error=inner))
    assert type(ours) is errors.TransientError
    assert "the server speaks no TLS: check the endpoint (of Kinesis: aws.endpoint)" in str(ours)


def test_missing_credentials_are_told_with_where_was_looked_and_what_to_do():
    ours = translate("GetRecords", sdk.NoCredentialsError())
    assert isinstance(ours, errors.ConfigurationError)
    first, *places, _, remedy = str(ours).splitlines()
    assert first == "No AWS credentials found. Looked in:"
    assert all(place.startswith("- ") for place in places)
    assert "~/.aws/config" in places[1]
    assert "`aws sso login`" in remedy


def test_a_parameter_that_the_sdk_refuses_is_fatal():
    assert type(translate("X", sdk.ParamValidationError(report="bad"))) is errors.FatalKinesisError


@pytest.mark.parametrize(
    ("code", "word"), [("UnrecognizedClientException", "aws.credentials.provider"), ("KMSDisabledException", "enable")]
)
def test_some_fatal_errors_name_what_to_change(code, word):
    assert word in str(error_for_code("GetRecords", code, "no"))


def test_a_start_in_the_future_is_told_as_one():
    message = "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis."
    error = str(error_for_code("GetShardIterator", "InvalidArgumentException", message))
    assert "the start is in the future: set flink.stream.initpos" in error
    assert "old positions are invalid" not in error


@pytest.mark.parametrize("code", [*HINTS, "UnknownCode", "418"])
def test_every_fatal_error_ends_with_a_hint(code):
    error = error_for_code("GetRecords", code, "no")
    assert error.remedy is errors.Remedy.ACT
    assert str(error).endswith("; " + HINTS.get(code, DEFAULT_HINT))


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "InternalFailure", "LimitExceededException"])
def test_errors_that_are_retried_have_no_hint(code):
    assert ";" not in str(error_for_code("GetRecords", code, "no"))


def test_a_long_message_is_truncated():
    assert len(str(error_for_code("GetRecords", "500", "x" * 10_000, 500))) < 700


def test_an_error_of_a_call_to_sts_names_that_operation():
    assert translate("GetRecords", client_error("AccessDenied", operation="AssumeRole")).api == "AssumeRole"


def test_the_cause_is_kept():
    foreign = client_error("InternalFailure", 500)
    with pytest.raises(errors.TransientError) as raised, translate_errors("GetRecords"):
        raise foreign
    assert raised.value.__cause__ is foreign


@pytest.mark.parametrize("error", [TypeError("bug"), asyncio.CancelledError(), errors.StateError("ours")])
def test_errors_of_other_origin_are_not_translated(error):
    with pytest.raises(type(error)) as raised, translate_errors("GetRecords"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("kinesis.us-esat-1.amazonaws.com", "knows no region 'us-esat-1'.*did you mean 'us-east-1'"),
        ("kinesis.eu-wst-1.amazonaws.com", "knows no region 'eu-wst-1'.*did you mean 'eu-west-1'"),
        ("123456789012.data-kinesis.us-eas-1.amazonaws.com", "did you mean 'us-east-1'"),
        ("kinesis.cn-nort-1.amazonaws.com.cn", "did you mean 'cn-north-1'"),
        ("kinesis.eu-west-1.amazonaws.com", None),
        ("vpce-0a1b.kinesis.eu-west-1.vpce.amazonaws.com", None),
        ("kinesis.eu-wst-1.example.com", None),
    ],
)
def test_a_region_that_neither_dns_nor_the_sdk_knows_ends_at_once_and_the_nearest_is_named(host, expected):
    error = sdk.EndpointConnectionError(
        endpoint_url=f"https://{host}/", error=socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    )

    found = translate("ListShards", error)

    if expected is None:
        assert isinstance(found, errors.TransientError)
    else:
        assert isinstance(found, errors.FatalKinesisError)
        assert re.search(expected, str(found))
