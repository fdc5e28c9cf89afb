"""Errors of this library: what their texts have of other libraries' errors."""

import pickle

import pytest

import recordpublisher as rp
from recordpublisher.publishers.errors import StreamNotActiveError


@pytest.mark.parametrize("kind", [rp.StateError, rp.SinkError, rp.FencedError])
def test_colours_of_a_terminal_are_not_in_an_error(kind):
    """As in errors of Rust libraries: a log would show the codes."""
    error = kind("not found\n \x1b[31m↳\x1b[0m \x1b[1;31mNo such file\x1b[0m")
    assert str(error) == "not found\n ↳ No such file"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_colours_are_not_in_a_configuration_error():
    assert "\x1b" not in str(rp.ConfigurationError("a.b", "c", "d", reason="\x1b[31mred\x1b[0m"))


def test_a_plugin_may_raise_a_transient_error_by_its_message_alone():
    error = rp.TransientError("the archive does not answer")
    assert (str(error), error.api, error.code) == ("the archive does not answer", "", "")
    assert str(rp.TransientError("GetRecords", "Busy", "later")) == "GetRecords failed with Busy: later"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (rp.ConfigurationError.conflict("--check", "--watch"), "option '--check' cannot be combined with '--watch'"),
        (
            rp.ConfigurationError.conflict("--check", "--watch", "--live", reason="it ends"),
            "option '--check' cannot be combined with '--watch' or '--live': it ends",
        ),
        (
            rp.ConfigurationError.conflict("--worker", "jobs:orders", value=0),
            "option '--worker 0' cannot be combined with 'jobs:orders'",
        ),
        (
            rp.ConfigurationError.conflict("restore", "flink.job.workers=GROUP"),
            "setting 'restore' cannot be combined with 'flink.job.workers=GROUP'",
        ),
        (
            rp.ConfigurationError.conflict("flink.a", "b", value="TCP"),
            "property 'flink.a=TCP' cannot be combined with 'b'",
        ),
        (
            rp.ConfigurationError.needs("--shard", "exactly one stream", reason="2 were given"),
            "option '--shard' needs exactly one stream: 2 were given",
        ),
    ],
)
def test_a_conflict_names_both_settings_and_no_value_that_was_not_given(error, words):
    assert str(error) == words
    assert str(error.renamed("--other")).partition(" ")[2].startswith("'--other")
    assert error.renamed(error.key).args == error.args


@pytest.mark.parametrize(
    "error",
    [
        rp.ConfigurationError("a.b", "c", "d", reason="e"),
        rp.ConfigurationError.conflict("--check", "--watch"),
        rp.FatalKinesisError("GetRecords", "AccessDeniedException", "no"),
        StreamNotActiveError("GetRecords", "orders"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_was_pickled_has_its_message_and_attributes(error):
    """A pool of processes hands the errors of its workers over so."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_secret_that_the_reason_quotes_is_masked():
    error = rp.ConfigurationError(
        "flink.sink.vault.token", "sk-5ecret", "a token", reason="the service refused sk-5ecret"
    )
    assert "5ecret" not in str(error)
    assert error.reason == "the service refused ******"
