"""Properties: typed and checked values from text (C1, C2, C3)."""

import pickle
import traceback
import warnings

import pytest

from recordpublisher import ConfigurationError, Properties
from recordpublisher.publishers.properties import boolean, declaration, integer, number, text
from recordpublisher.publishers.properties.declaration import is_secret
from recordpublisher.publishers.properties.fan_out_properties import CONSUMER_ARN, CONSUMER_NAME, REGISTRATION
from recordpublisher.publishers.properties.job_properties import TIMESTAMP_FIELD
from recordpublisher.publishers.properties.polling_properties import ADAPTIVE_READS, GETRECORDS_INTERVAL, GETRECORDS_MAX
from recordpublisher.publishers.properties.properties import parse_properties
from recordpublisher.publishers.properties.reading_properties import (
    ACCESS_KEY_ID,
    REGION,
    REQUEST_TIMEOUT,
    SECRET_KEY,
    SESSION_TOKEN,
)
from recordpublisher.publishers.safe_text import MASK

SECRET = "s3cr3t"


def test_keys_compare_without_case():
    properties = Properties({"flink.stream.EFO.ConsumerName": "me"})

    assert properties.value(CONSUMER_NAME) == "me"
    assert properties["FLINK.STREAM.EFO.CONSUMERNAME"] == "me"
    assert "flink.stream.efo.consumername" in properties


def test_of_two_keys_that_differ_only_in_case_the_later_one_wins():
    properties = Properties({"AWS.Region": "a", "aws.region": "b"})

    assert dict(properties) == {"aws.region": "b"}
    assert len(properties) == 1


def test_typed_values_are_converted_to_text():
    properties = Properties({"flink.shard.adaptivereads": True, "flink.shard.getrecords.maxrecordcount": 7})

    assert properties.value(ADAPTIVE_READS) is True
    assert properties.value(GETRECORDS_MAX) == 7


@pytest.mark.parametrize("given", ["out", print, 3, [("aws.region", "x")]])
def test_what_is_no_mapping_is_refused_in_a_sentence(given):
    with pytest.raises(ConfigurationError, match=r"'properties' is .*. Valid: a mapping of property keys"):
        Properties(given)


def test_none_means_not_set():
    assert not Properties({"aws.region": None}).is_set(REGION)
    assert not Properties({"aws.region": "x"}).merged({"AWS.REGION": None}).is_set(REGION)


def test_merging_ignores_case_and_does_not_change_the_original():
    original = Properties({"AWS.Region": "a", "aws.endpoint": "b"})

    assert dict(original.merged({"aws.region": "c"})) == {"aws.endpoint": "b", "aws.region": "c"}
    assert original.value(REGION) == "a"


def test_an_older_spelling_is_valid_and_named_in_the_error():
    assert Properties({"flink.stream.efo.registrar": "eager"}).value(REGISTRATION) == "EAGER"

    with pytest.raises(ConfigurationError, match=r"'flink.stream.efo.registrar' is 'x'"):
        Properties({"flink.stream.efo.registrar": "x"}).value(REGISTRATION)


def test_an_error_has_key_value_and_valid_values():
    with pytest.raises(ConfigurationError) as raised:
        Properties({"flink.shard.getrecords.maxrecordcount": "10001"}).value(GETRECORDS_MAX)

    error = raised.value
    assert (error.key, error.value, error.valid) == (
        "flink.shard.getrecords.maxrecordcount",
        "10001",
        "a whole number from 1 to 10000 records",
    )
    assert all(part in str(error) for part in (error.key, "10001", error.valid))


def test_surrounding_spaces_are_ignored():
    assert Properties({"flink.shard.getrecords.intervalmillis": " 5 "}).value(GETRECORDS_INTERVAL) == 5


def test_keys_under_a_prefix_are_returned_in_lower_case():
    properties = Properties({"flink.stream.efo.ConsumerArn.Orders": "arn:1"})

    assert properties.with_prefix(CONSUMER_ARN) == {"orders": "arn:1"}


@pytest.mark.parametrize(
    "key",
    [
        "flink.stream.efo.consumerarn.orders",
        "flink.shard.consumer.error.recoverable[0].exception",
        "FLINK.STREAM.INITPOS",
        "flink.stream.efo.registrar",
        "my.own.key",
        "spark.executor.memory",
        "spring.datasource.url",
    ],
)
def test_known_keys_and_other_name_spaces_cause_no_warning(key):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Properties({key: "LATEST" if "initpos" in key.lower() else "lazy"}).check()


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("flink.stream.recordpublishr", "flink.stream.recordpublisher"),
        ("flink.stream.EFO.consumer.name", "flink.stream.efo.consumername"),
        ("aws.regoin", "aws.region"),
        ("initpos", "flink.stream.initpos"),
        ("region", "aws.region"),
        ("regoin", "aws.region"),
        ("AWS_REGION", "aws.region"),
        ("endpoint", "aws.endpoint"),
        ("recordPublisher", "flink.stream.recordpublisher"),
        ("stream.initpos", "flink.stream.initpos"),
        ("watermark.lookahead.millis", "flink.watermark.lookahead.millis"),
        ("flnk.stream.initpos", "flink.stream.initpos"),
    ],
)
def test_a_misspelt_key_is_an_error_with_the_nearest_known_one(key, nearest):
    with pytest.raises(
        ConfigurationError, match=f"'{key}' is not accepted: there is no such property; did you mean '{nearest}'"
    ):
        Properties({key: "x"}).check()


@pytest.mark.parametrize("prefix", ["", "flink.sink."])
def test_a_suggestion_is_a_key_of_the_same_plugin(monkeypatch, prefix):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text(f"{prefix}line-log.file", "The file.")
    with pytest.raises(ConfigurationError, match=f"did you mean '{prefix}line-log.file'"):
        Properties({"flink.sink.line-log.folder": "x"}).check()


def test_an_unknown_key_without_a_similar_one_is_logged(caplog):
    Properties({"xyzzy": "x"}).check()
    assert caplog.messages == ["unknown property 'xyzzy': nothing that is installed declares it"]


def test_the_key_of_a_plugin_with_an_underscore_is_recognised(monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text("folder-lines.folder", "The folder.")
    with pytest.raises(ConfigurationError, match=r"'folder_lines.folder' .*; did you mean 'folder-lines.folder'"):
        Properties({"folder_lines.folder": "x"}).check()


@pytest.mark.parametrize(
    ("declare", "default", "kind"), [(integer, "5", "int"), (number, "0.5", "float"), (boolean, "true", "bool")]
)
def test_a_default_of_another_type_is_refused_when_it_is_declared(declare, default, kind, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    with pytest.raises(
        ConfigurationError, match=rf"'lines.n' is '{default}'.* Valid: a default of the type {kind}, or"
    ):
        declare("lines.n", "A number of lines.", default)


def test_a_plugin_cannot_declare_the_key_of_another_property(monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    with pytest.raises(
        ConfigurationError,
        match=r"property 'aws.region' is declared already, with the description '.+'. Valid: a key of its own",
    ):
        text("aws.region", "Where the files are.")
    with pytest.raises(ConfigurationError, match=r"'my key' cannot be a key\. Valid: a key of letters"):
        text("my key", "Where the files are.")
    text("audit-log.file", "The file.")
    text("audit-log.file", "The file.")  # its module was imported again


def test_the_keyword_of_a_plugins_key_is_told_where_it_belongs(monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text("folder-lines.folder", "The folder.")
    with pytest.raises(
        ConfigurationError, match=r"it is a plugin's property, and given as {'folder-lines.folder': ...}"
    ):
        Properties(folder_lines_folder="x")


def test_a_typo_in_the_settings_of_a_plugin_is_an_error_and_other_name_spaces_are_not(monkeypatch, caplog):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text("audit-log.file", "The file.")
    with pytest.raises(ConfigurationError, match=r"'audit-log.fiel' .*; did you mean 'audit-log.file'"):
        Properties({"audit-log.fiel": "x"}).check()
    Properties({"audit-log.file": "x", "my.own.key": "x"}).check()
    assert caplog.messages == []


def test_the_check_of_keys_without_a_dot_can_be_left_to_the_caller():
    Properties({"path": "x"}).check(lambda key: "." in key)
    with pytest.raises(ConfigurationError, match="did you mean 'aws"):
        Properties({"aws.regoin": "x"}).check(lambda key: "." in key)


def test_a_prefix_alone_is_no_valid_key():
    with pytest.raises(ConfigurationError, match="there is no such property"):
        Properties({"flink.stream.efo.consumerarn.": "x"}).check()


def test_the_warning_for_a_key_of_flink_without_effect_has_the_reason(caplog):
    Properties({"flink.watermark.sync.queue.capacity": "100"}).check()
    assert "has no effect here: queues are bounded by flink.shard.queue.records" in caplog.text


def test_check_parses_every_given_property():
    with pytest.raises(ConfigurationError, match=r"flink\.shard\.idle\.interval"):
        Properties({"flink.shard.idle.interval": "soon"}).check()


@pytest.mark.parametrize("declared", [ACCESS_KEY_ID, SECRET_KEY, SESSION_TOKEN])
def test_declared_secrets_are_masked(declared):
    shown = repr(Properties({declared.key.upper(): SECRET}))

    assert SECRET not in shown
    assert MASK in shown


def test_undeclared_keys_named_like_a_secret_are_masked():
    assert all(is_secret(key) for key in ("my.password", "my.api.token", "aws.SecretKey", "flink.x.accesskeyid"))
    assert not is_secret("aws.region")


def test_errors_do_not_show_secrets():
    def parse(given: str) -> int:
        return int(given)

    declared = SECRET_KEY.__class__("my.token", parse, 0, "a number", "A number.", secret=True)

    with pytest.raises(ConfigurationError) as raised:
        Properties({"my.token": SECRET}).value(declared)

    assert SECRET not in "".join(traceback.format_exception(raised.value, chain=True)).replace("SECRET", "")
    assert MASK in str(raised.value)


def test_errors_do_not_show_passwords_inside_a_value():  # C3
    with pytest.raises(ConfigurationError) as raised:
        Properties({REQUEST_TIMEOUT.key: "postgresql://me:hunter2@host"}).value(REQUEST_TIMEOUT)

    shown = "".join(traceback.format_exception(raised.value))
    assert "me:******@host" in shown
    assert "hunter2" not in shown.replace('me:hunter2@host"}).value', "")  # the line of this test


def test_properties_can_be_pickled():
    properties = Properties({"AWS.Region": "x"})

    assert pickle.loads(pickle.dumps(properties)) == properties


def test_two_spellings_of_a_property_with_different_values_are_an_error():
    given = Properties({REGISTRATION.key: "EAGER", "flink.stream.efo.registrar": "NONE"})
    with pytest.raises(
        ConfigurationError,
        match=f"cannot be combined with .*: both are spellings of {REGISTRATION.key}, and their values differ",
    ):
        given.value(REGISTRATION)


def test_two_spellings_with_the_same_value_are_none():
    given = Properties({REGISTRATION.key: "EAGER", "flink.stream.efo.registrar": "eager"})
    assert given.value(REGISTRATION) == "EAGER"


def test_merged_replaces_a_property_in_whichever_spelling_it_was_given():
    given = Properties({"flink.stream.efo.registrar": "EAGER"}).merged({REGISTRATION.key: "NONE"})
    assert given.value(REGISTRATION) == "NONE"


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1\nb : 2\n  c   3", {"a": "1", "b": "2", "c": "3"}),
        ("# one\n! two\n\n   # three\na=1", {"a": "1"}),
        ("a=one \\\n   two\nb=3", {"a": "one two", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("# a comment does not continue \\\na=1", {"a": "1"}),
        ("\\\n#key=1", {"#key": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=\\t|\\n|\\r|\\f|\\q", {"a": "\t|\n|\r|\f|q"}),
        ("a=\\u00e9\\u20ac", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=é 😀", {"a": "é 😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\u2028b=2\x0b\x85", {"a": "1\u2028b=2\x0b\x85"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=trailing space  ", {"a": "trailing space  "}),
        ("a\u00a0b=1", {"a\u00a0b": "1"}),
        ("a:=1", {"a": "=1"}),
        ("", {}),
    ],
)
def test_a_file_is_parsed_as_in_java(content, pairs):
    assert parse_properties(content) == pairs


@pytest.mark.parametrize("escape", ["\\u12", "\\uzzzz", "\\ud83d"])
def test_a_malformed_unicode_escape_is_refused(escape, tmp_path):
    file = tmp_path / "job.properties"
    file.write_text(f"a={escape}")

    with pytest.raises(ConfigurationError, match="readable Java properties file"):
        Properties.from_file(file)


def test_a_file_becomes_properties(tmp_path):
    file = tmp_path / "job.properties"
    file.write_bytes(b"\xef\xbb\xbfaws.region=eu-west-1\nFlink.Stream.InitPos = trim_horizon\n")

    assert dict(Properties.from_file(str(file))) == {"aws.region": "eu-west-1", "Flink.Stream.InitPos": "trim_horizon"}


@pytest.mark.parametrize("content", [None, b"a=\xff\xfe"])
def test_the_error_for_an_unreadable_file_names_it(content, tmp_path):
    file = tmp_path / "job.properties"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"job\.properties"):
        Properties.from_file(file)


@pytest.mark.parametrize(
    "key",
    [
        *("team", "owner", "env", "version", "comment"),
        *("aws.profile", "aws.account", "aws.s3.bucket", "aws.tags"),
        *("flink.my.team.owner", "flink.version", "flink.jobmanager.memory", "flink.parallelism", "flink.log.level"),
    ],
)
def test_a_key_that_only_shares_letters_with_a_known_one_stops_no_job(caplog, key):
    """A file may also have keys of other programs."""
    Properties({key: "x"}).check()

    assert f"unknown property '{key}': nothing that is installed declares it" in caplog.text


@pytest.mark.parametrize("given", ['"state"', "'state'"])
def test_quotes_around_a_text_are_refused_because_they_would_be_part_of_it(given):
    """A Java properties file has no quotes: the folder would be named with them."""
    with pytest.raises(
        ConfigurationError, match=r"flink.state.uri.*the quotes would be part of the value: remove them"
    ):
        Properties({"flink.state.uri": given}).check()
    Properties({"flink.deserializer.avro.schema": '"string"'}).check()


@pytest.mark.parametrize(
    ("declare_it", "default", "valid"),
    [
        (lambda key: declaration.integer(key, "N.", 0, 1), 0, "a whole number of at least 1"),
        (lambda key: declaration.choice(key, "N.", "some", ("ALL", "NONE")), "some", "ALL, NONE"),
        (lambda key: declaration.choice(key, "N.", "all", ("ALL", "NONE")), "all", "ALL, NONE"),
        (lambda key: declaration.choice(key, "N.", "NONE", ("all", "NONE")), "all", "ALL"),
        (lambda key: declaration.text(key, "N.", ""), "", "a text that is not empty"),
        (lambda key: declaration.text(key, "N.", " a"), " a", "a text that is not empty"),
        (lambda key: declaration.text(key, "N.", 5), 5, "a default of the type str"),
    ],
)
def test_c1_a_default_that_could_not_be_given_is_refused(declare_it, default, valid, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    with pytest.raises(ConfigurationError, match=f"'lines.odd' is '?{default}'?: .* Valid: {valid}"):
        declare_it("lines.odd")


def test_a_key_that_only_a_plugin_knows_is_looked_for_by_its_spelling(caplog):
    given = Properties({"orders.databse": "prod.db", "orders.table": "t", "flink.sink": "memory"})

    for _ in range(3):  # as for each record: one warning
        assert given.get("orders.database", "orders.db") == "orders.db"
    assert given.get("orders.table", "u") == "t"
    assert given.get(5, "no text") == "no text"
    assert given.get("orders.pool", 3) == given.get("orders.pool", default=3) == 3
    assert given.get("flink.sinc") is None
    assert caplog.messages == [
        "property 'orders.database' is not set, and 'orders.databse' is unknown: is it a misspelling of 'orders.database'?"
    ]


def test_a_declared_property_in_place_of_its_key_is_an_error_that_says_how_to_read_it():
    with pytest.raises(TypeError, match=r"read the declared property '.*' with `properties\.value`"):
        Properties({}).get(TIMESTAMP_FIELD)


def test_an_older_name_of_a_property_of_a_dead_letter_sink_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text("flink.sink.acme-find.url", "The service.", aliases=("flink.sink.acme-search.url",))
    Properties({"flink.deadletter.acme-search.url": "a", "flink.sink.acme-find.url": "b"}).check()
    Properties({"flink.deadletter.acme-find.url": "a"}).check()

    assert [line.partition(":")[0] for line in caplog.messages] == [
        "property 'flink.deadletter.acme-search.url' is an older name of 'flink.deadletter.acme-find.url'"
    ]


def test_an_older_name_of_a_plugins_property_is_warned_of_and_a_spelling_of_flink_is_not(monkeypatch, caplog):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    text("acme.key.file", "The file with the key.", aliases=("acme.token.file",))
    given = Properties({"acme.Token.file": "a", "flink.stream.efo.registrar": "LAZY"})
    given.check()

    assert caplog.messages == [
        "property 'acme.Token.file' is an older name of 'acme.key.file': use the new one, because the old one may be removed"
    ]
