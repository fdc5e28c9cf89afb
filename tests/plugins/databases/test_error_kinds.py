"""How errors of a database are told."""

import pytest
from sqlalchemy.exc import OperationalError

from recordpublisher.plugins.databases.error_kinds import words_of_lost_connection


class OfServerError(Exception):
    sqlstate = "57P01"


@pytest.mark.parametrize(
    "original",
    [
        OfServerError("terminating connection"),
        Exception("server closed the connection. It terminated abnormally before"),
    ],
)
def test_a_session_that_was_ended_is_not_told_as_a_crash_of_the_server(original):
    assert "by a later start of this job" in words_of_lost_connection(OperationalError("SELECT 1", {}, original))


def test_another_error_keeps_its_words():
    assert words_of_lost_connection(OperationalError("SELECT 1", {}, Exception("deadlock detected"))) is None
