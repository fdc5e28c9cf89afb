"""RecoverableErrors: errors that a user declared to be retried (F3, FLINK-33260)."""

import pytest

from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    RecordPublisherError,
    ThrottledError,
)
from recordpublisher.publishers.fanout.recoverable_errors import RecoverableErrors
from recordpublisher.publishers.properties.properties import Properties

KEY = "flink.shard.consumer.error.recoverable"
DENIED = FatalKinesisError("SubscribeToShard", "AccessDeniedException", "no")


def declared(*names):
    return RecoverableErrors.of(Properties({f"{KEY}[{index}].exception": name for index, name in enumerate(names)}))


def caused_by(error):
    outer = RecordPublisherError("outside")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("AccessDeniedException", DENIED),
        ("software.amazon.awssdk.services.kinesis.model.AccessDeniedException", DENIED),
        ("FatalKinesisError", DENIED),
        ("KinesisError", DENIED),  # a base class counts, as in Java
        ("recordpublisher.publishers.errors.FatalKinesisError", DENIED),
        ("ConnectionResetError", caused_by(ConnectionResetError())),
        ("builtins.ConnectionResetError", caused_by(ConnectionResetError())),
        ("OSError", caused_by(ConnectionResetError())),
    ],
)
def test_a_name_matches_classes_and_codes_through_the_chain_of_causes(name, error):
    assert error in declared(name)


def test_all_indices_are_used():
    assert DENIED in declared("java.net.SocketException", "ValueError", "AccessDeniedException")


def test_undeclared_errors_are_not_recoverable():
    assert DENIED not in declared()
    assert DENIED not in declared("ThrottledError", "other.FatalKinesisError")
    assert ThrottledError("a", "LimitExceededException", "") not in declared("AccessDeniedException")


@pytest.mark.parametrize(
    "given",
    [
        {f"{KEY}[1].exception": "X"},
        {f"{KEY}[0].exception": "X", f"{KEY}[2].exception": "Y"},
        {f"{KEY}[a].exception": "X"},
        {f"{KEY}[0].error": "X"},
        {f"{KEY}[0].exception": "not a name"},
        {f"{KEY}[0].exception": ""},
    ],
)
def test_an_invalid_declaration_is_an_error_with_an_example(given):
    with pytest.raises(ConfigurationError, match=r"recoverable\[0\]\.exception=<name>"):
        RecoverableErrors.of(Properties(given))
