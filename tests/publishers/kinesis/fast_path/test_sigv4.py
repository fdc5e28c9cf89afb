"""Our signature is the same as the SDK's."""

from datetime import UTC, datetime
from types import SimpleNamespace

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.fast_path.sigv4 import SignedPost

HEADERS = {
    "User-Agent": "Botocore/1.43  aio",
    "X-Amz-Target": "Kinesis_20131202.GetRecords",
    "Content-Type": "application/x-amz-json-1.1",
}
NOW = 1_700_000_000.5
URLS = [
    "https://kinesis.eu-west-1.amazonaws.com/",
    "https://kinesis.eu-west-1.amazonaws.com:443",
    "http://127.0.0.1:4566/",
    "http://[::1]:4566/",
    "http://Localhost:80/a/../some%20path/~x",
]


def signed_by_the_sdk(url, credentials, body, monkeypatch, now=NOW):
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(now, tz=UTC))
    request = AWSRequest("POST", url, dict(HEADERS), body)
    SigV4Auth(credentials, "kinesis", "eu-west-1").add_auth(request)
    return request.prepare()


def head_of(request):
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("token", [None, "a+session/token=="])
@pytest.mark.parametrize("body", [b"{}", bytes(range(256)) * 1000], ids=len)
def test_the_request_is_signed_as_by_the_sdk(url, token, body, monkeypatch):
    credentials = ReadOnlyCredentials("AKID", "secret/+", token)
    theirs = signed_by_the_sdk(url, credentials, body, monkeypatch)
    first, ours, sent = head_of(SignedPost(url, HEADERS, "eu-west-1").build(body, credentials, NOW))
    expected = {name: value.decode() if isinstance(value, bytes) else value for name, value in theirs.headers.items()}
    assert {name: ours[name] for name in expected} == expected
    assert first.startswith("POST /")
    assert first.endswith(" HTTP/1.1")
    assert sent == body


def test_a_new_day_and_renewed_credentials_have_their_own_key(monkeypatch):
    post = SignedPost(URLS[0], HEADERS, "eu-west-1")
    for now, secret in ((NOW, "a"), (NOW, "b"), (NOW + 86_400, "b"), (NOW, "a")):
        credentials = ReadOnlyCredentials("AKID", secret, None)
        theirs = signed_by_the_sdk(URLS[0], credentials, b"{}", monkeypatch, now).headers["Authorization"]
        assert head_of(post.build(b"{}", credentials, now))[1]["Authorization"] == theirs


def test_the_host_is_sent_without_the_schemes_own_port():
    credentials = SimpleNamespace(access_key="a", secret_key="s", token=None)
    post = SignedPost("https://kinesis.eu-west-1.amazonaws.com:443", HEADERS, "eu-west-1")
    first, headers, _ = head_of(post.build(b"", credentials, NOW))
    assert (first, headers["Host"]) == ("POST / HTTP/1.1", "kinesis.eu-west-1.amazonaws.com")


@pytest.mark.parametrize(
    "credentials",
    [ReadOnlyCredentials("AKID", "s", "token\r\nX-Evil: 1"), ReadOnlyCredentials("AK\r\nX-Evil: 1", "s", None)],
)
def test_control_characters_in_credentials_never_become_headers(credentials):
    with pytest.raises(ConfigurationError, match="control characters") as raised:
        SignedPost(URLS[0], HEADERS, "eu-west-1").build(b"{}", credentials, NOW)
    assert "Evil" not in str(raised.value)


def test_the_secret_is_not_in_the_repr():
    post = SignedPost(URLS[0], HEADERS, "eu-west-1")
    post.build(b"{}", ReadOnlyCredentials("AKID", "hunter2", None), NOW)
    assert "hunter2" not in repr(post)
