"""C2: each file that TLS cannot use is an error with its key, its value and what is valid, before anything is sent."""

import pytest

from recordpublisher.plugins.trackers.tcp.tls import client_context, server_context
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from servers.certificates import CertificateAuthority

CA, CERTIFICATE, KEY = (f"flink.watermark.tracker.tls.{name}" for name in ("ca", "certificate", "key"))
NO_FILE = "/nowhere/file.pem"


@pytest.fixture
def authority(tmp_path):
    return CertificateAuthority(tmp_path)


@pytest.fixture
def files(authority, tmp_path):
    """Files that are valid, and some that are not."""
    certificate, key = authority.issue()
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "empty").touch()
    return {
        "ca": authority.file,
        "certificate": certificate,
        "key": key,
        "other key": authority.issue()[1],
        "encrypted key": authority.issue(password=b"secret")[1],
        "expired": authority.issue(days=-1),
        "not yet": authority.issue(days=9, before=-2),
        "text": str(tmp_path / "text"),
        "empty": str(tmp_path / "empty"),
        "folder": str(tmp_path),
        "missing": NO_FILE,
        "null": "a\0b",
    }


def error_of(build, *arguments):
    with pytest.raises(ConfigurationError) as caught:
        build(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value


def properties_of(ca=None, certificate=None, key=None):
    return Properties({CA: ca, CERTIFICATE: certificate, KEY: key})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("missing", "No such file or directory"),
        ("folder", "Is a directory"),
        ("null", "embedded null byte"),
        ("text", "it has no certificate: "),
        ("empty", "it has no certificate: "),
        ("key", "it has no certificate: "),
    ],
)
def test_a_ca_file_that_cannot_be_used(files, wrong, reason):
    error = error_of(client_context, properties_of(files[wrong]))

    assert (error.key, error.value) == (CA, files[wrong])
    assert error.valid == "a file of certificates in PEM form"
    assert reason in error.reason


@pytest.mark.parametrize("wrong", ["missing", "folder", "text", "empty", "key"])
def test_a_certificate_file_that_cannot_be_used(files, wrong):
    error = error_of(client_context, properties_of(files["ca"], files[wrong], files["key"]))

    assert (error.key, error.value) == (CERTIFICATE, files[wrong])
    assert error.valid.startswith("a file with a certificate in PEM form")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("missing", "No such file or directory"),
        ("text", "it has no private key: "),
        ("empty", "it has no private key: "),
        ("certificate", "it has no private key: "),
        ("other key", "it is not the key of "),
        ("encrypted key", "the key is encrypted"),
    ],
)
def test_a_key_file_that_cannot_be_used(files, wrong, reason):
    error = error_of(client_context, properties_of(files["ca"], files["certificate"], files[wrong]))

    assert (error.key, error.value) == (KEY, files[wrong])
    assert error.valid == "a file with the private key of the certificate, in PEM form and without a password"
    assert error.reason.startswith(reason)


@pytest.mark.parametrize(("wrong", "reason"), [("expired", "has expired"), ("not yet", "is not yet valid")])
def test_a_certificate_outside_of_its_dates(files, wrong, reason):
    certificate, key = files[wrong]
    for error in (
        error_of(client_context, properties_of(files["ca"], certificate, key)),
        error_of(server_context, certificate, key),
    ):
        assert error.value == certificate
        assert error.reason == f"certificate {reason}"
        assert error.valid == "a certificate that is valid today"


@pytest.mark.parametrize(
    ("given", "missing", "needed_by"),
    [
        ({"certificate", "key"}, CA, CERTIFICATE),
        ({"key"}, CA, KEY),
        ({"ca", "certificate"}, KEY, CERTIFICATE),
        ({"ca", "key"}, CERTIFICATE, KEY),
    ],
)
def test_a_property_that_others_need(files, given, missing, needed_by):
    error = error_of(client_context, properties_of(**{name: files[name] for name in given}))

    assert (error.key, error.value) == (missing, None)
    assert error.reason == f"needed by {needed_by}"


@pytest.mark.parametrize(
    ("given", "missing", "needed_by"),
    [
        ((None, "key", None), "--certificate", "--key"),
        ((None, None, "ca"), "--certificate", "--client-ca"),
        (("certificate", None, None), "--key", "--certificate"),
    ],
)
def test_an_option_that_others_need(files, given, missing, needed_by):
    names = ("--certificate", "--key", "--client-ca")
    error = error_of(server_context, *(name and files[name] for name in given), names)

    assert str(error).startswith(f"option '{missing}' is required: needed by {needed_by}. Valid: ")


def test_a_wrong_ca_of_clients_is_named(files):
    error = error_of(server_context, files["certificate"], files["key"], files["text"])

    assert (error.key, error.value) == ("client_ca", files["text"])


def test_without_files_there_is_no_tls():
    assert client_context(properties_of()) is None
    assert server_context(None, None) is None
