import json
from functools import partial
from urllib.parse import quote

import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import prefix, text
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.safe_text import mask_passwords, mask_quoted


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:hunter2@host:5432/db?x=1", "postgresql://me:******@host:5432/db?x=1"),
        ("postgresql://me:p@ss:hunter2@host/db", "postgresql://me:******@host/db"),
        ("postgresql://host/db?user=me&password=hunter2&x=1", "postgresql://host/db?user=me&password=******&x=1"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("http://127.0.0.1:4567", "http://127.0.0.1:4567"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("host=h user=me password=hunter2 dbname=d", "host=h user=me password=****** dbname=d"),
        ("password = 'hun ter\\'2' host=h", "password = ****** host=h"),
        ("postgresql://me:hunter2", "postgresql://me:******"),
        ("postgresql://me:hunter2/db", "postgresql://me:******/db"),
        ("mysql://host/db?passwd=hunter2&x=1", "mysql://host/db?passwd=******&x=1"),
        ("postgresql://host/db?sslkey=/k.pem", "postgresql://host/db?sslkey=******"),
        ("//me:hunter2@host/db", "//me:******@host/db"),
        ("me:hunter2@host/db", "me:******@host/db"),
        ("postgresql:me:hunter2@host/db", "postgresql:******@host/db"),
        ("postgres//loader:hunter2@h:5432/db", "postgres//loader:******@h:5432/db"),
        ("postgresql:/loader:hunter2@h/db", "postgresql:/loader:******@h/db"),
        ("postgresql:/loader:/hunter2@h/db", "postgresql:/loader:******@h/db"),
        ("a=1,'/loader:hunter2@h/db'", "a=1,'/loader:******@h/db'"),
        ("arn:aws:sts::1:assumed-role/r/me@example", "arn:aws:sts::1:assumed-role/r/me@example"),
        ("file:/home/me@host/state", "file:/home/me@host/state"),
        ("C:/data/me@host", "C:/data/me@host"),
        ("host=h password=a&hunter2 x=1", "host=h password=****** x=1"),
        ("password=a\\ hunter2 x=1", "password=****** x=1"),
        ("password='it is hunter2", "password=******"),
        ('password="it is hunter2" x=1', "password=****** x=1"),
        ("PWD={it is;hunter2};x=1", "PWD=******;x=1"),
        ("sslmode=verify-full passphrase=hunter2", "sslmode=verify-full passphrase=******"),
        ("postgresql://host/db?api_key=hunter2&x=1", "postgresql://host/db?api_key=******&x=1"),
        ("http://[::1]:4567/", "http://[::1]:4567/"),
        ("http://h:4567/a?b=1", "http://h:4567/a?b=1"),
    ],
)
def test_passwords_of_uris_are_never_shown(uri, shown):  # C3
    assert mask_passwords(uri) == shown
    assert repr(Properties({"flink.sink.sql.uri": uri})) == f"Properties({{'flink.sink.sql.uri': {shown!r}}})"


def test_a_configuration_error_masks_its_value_and_its_reason():  # C3
    uri = "https://me:hunter2@host"
    error = ConfigurationError("aws.endpoint", uri, "a URL", reason=f"cannot connect to {uri}")

    assert (error.value, error.reason) == ("https://me:******@host", "cannot connect to https://me:******@host")
    assert "hunter2" not in f"{error!r} {error}"


@pytest.mark.parametrize("given", ["?pass" * 40_000, "://a:" * 40_000, "password " * 20_000, "a:" * 90_000 + "@"])
@pytest.mark.timeout(20)
def test_masking_takes_time_in_proportion_to_the_length(given):
    assert mask_passwords(given)


@pytest.mark.parametrize("name", ["api_key", "api.key", "private-key", "credential", "aws_access_key", "password"])
def test_one_list_of_names_masks_parameters_and_properties(name):  # C3
    assert mask_passwords(f"{name}=hunter2") == f"{name}=******"
    assert "hunter2" not in repr(Properties({f"my.{name}": "hunter2"}))


def test_an_error_names_the_type_of_a_wrong_container_and_not_its_content():  # C3
    with pytest.raises(ConfigurationError, match="a list") as raised:
        Properties([{"aws.credentials.provider.basic.secretkey": "hunter2"}])

    assert "hunter2" not in f"{raised.value!r} {raised.value} {raised.value.value}"


HIDDEN = "OPENSESAME"


@pytest.fixture(scope="module")
def secrets():
    """Keys of properties that a plugin has declared as secret, whose names do not say so."""
    text("flink.sink.vault.handshake", "The word that opens the vault.", secret=True)
    prefix("flink.sink.vault.header.", "A header of each request.", secret=True)
    return ["flink.sink.vault.handshake", "flink.deadletter.vault.handshake", "flink.sink.vault.header.answer"]


@pytest.mark.parametrize("key", ["flink.acme-kv.handshake", "acme.handshake", "flink.deadletter.acme.handshake"])
def test_the_value_of_a_key_that_nothing_has_declared_yet_is_not_shown(
    key,
):  # C3: its plugin may declare it as a secret
    properties = Properties({key: HIDDEN, "aws.region": "eu-west-1"})

    assert repr(properties) == f"Properties({{'{key}': '******', 'aws.region': 'eu-west-1'}})"


def test_a_declared_value_that_is_not_secret_is_shown():
    given = {
        "flink.stream.efo.consumerarn.orders": "arn",
        "FLINK.deadletter.jsonl.path": "bad",
        "aws.producer.aggregationMaxCount": "7",
    }

    assert repr(Properties(given)) == f"Properties({given})"


def test_a_declared_secret_is_masked_in_all_its_spellings(secrets):  # C3: for a dead-letter sink, and below a prefix
    for key in secrets:
        assert repr(Properties({key.upper(): HIDDEN})) == f"Properties({{'{key.upper()}': '******'}})"


def test_a_configuration_error_does_not_show_the_value_of_a_secret(secrets):  # C3
    for key in [*secrets, "my.password"]:
        error = ConfigurationError(key, HIDDEN, "two words")

        assert error.value == "******"
        assert str(error).endswith(f"property '{key}' is '******'. Valid: two words")
        assert HIDDEN not in f"{error!r} {ConfigurationError.conflict(key, 'my.other', value=HIDDEN)}"
        assert ConfigurationError(key, valid="two words").value is None


@pytest.mark.parametrize("keyword", ["acme_handshake", "sink_vault_handshake"])
def test_the_value_of_an_unknown_keyword_argument_is_not_shown(keyword, secrets):  # C3
    with pytest.raises(ConfigurationError, match="there is no such keyword argument") as raised:
        Properties(**{keyword: HIDDEN})

    assert HIDDEN not in f"{raised.value!r} {raised.value} {raised.value.value}"


def test_a_secret_that_begins_another_one_does_not_uncover_its_end():  # C3
    secrets = {"a.token": "hunter", "b.token": "hunter22", "c.token": "hunt"}
    assert mask_quoted("hunter22 is refused, hunter too", secrets) == "****** is refused, ****** too"


@pytest.mark.parametrize("form", [str, repr, json.dumps, partial(quote, safe=""), lambda secret: repr(secret.encode())])
def test_a_secret_is_masked_however_it_is_quoted(form):  # C3
    for secret in ("hunt\\er", "hun't\"er", "hunt\ner", "hünter", "hunt@r"):
        shown = mask_quoted(f"it is {form(secret)}", {"password": secret})
        assert "hunt" not in shown
        assert "nter" not in shown
        assert "******" in shown


def test_a_secret_that_a_program_gives_as_a_number_is_masked():  # C3
    error = ConfigurationError("my.password", 12345678, reason="the service refused 12345678")
    assert "12345678" not in str(error)
