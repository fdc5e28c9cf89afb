"""Errors of this library: what their texts have of other libraries' errors."""

import pickle

import pytest

import recordpublisher as rp


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
