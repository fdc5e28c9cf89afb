"""Log lines in JSON."""

import json
import logging

from recordpublisher.cli.run_logs import JsonLines


def line(message, *arguments, level=logging.INFO, error=None, **more):
    record = logging.LogRecord("recordpublisher.run", level, "file", 1, message, arguments, error)
    record.__dict__.update(more)
    return json.loads(JsonLines().format(record))


def test_a_line_has_time_level_logger_and_message():
    shown = line("subtask %d ended", 3)

    assert shown["message"] == "subtask 3 ended"
    assert (shown["level"], shown["logger"]) == ("INFO", "recordpublisher.run")
    assert shown["time"].endswith("+00:00")


def test_a_traceback_and_fields_are_part_of_the_object():
    try:
        int("two\nlines")
    except ValueError as error:
        shown = line("failed", error=(ValueError, error, error.__traceback__), fields={"progress": {"records": 5}})

    assert "ValueError: invalid literal" in shown["traceback"]
    assert shown["progress"] == {"records": 5}
