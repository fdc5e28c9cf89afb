"""The levels that a command sets in this process do not reach the next test."""

import logging

from recordpublisher.cli.commands.run import configure_logging
from recordpublisher.cli.output import set_verbosity

from kept_log_settings import kept_log_settings

NAMES = ("recordpublisher", "recordpublisher.start", "recordpublisher.command", "recordpublisher.group")


def levels() -> list[int]:
    return [logging.getLogger(name).level for name in NAMES]


class Context:
    def __init__(self):
        self.obj = {"verbose": False, "debug": False}


def test_what_a_command_has_set_ends_with_its_test():
    before = levels()
    with kept_log_settings():
        set_verbosity(Context(), verbose=True)
        configure_logging(verbose=True)
        assert levels() == [logging.INFO] * 4
    assert levels() == before
