"""Log lines in JSON, and what they are about."""

import json
import logging
from decimal import Decimal

import pytest

from recordpublisher.cli.output import JsonLines, TextLines
from recordpublisher.publishers.log_fields import log_extra, log_fields


def line(message, *arguments, level=logging.INFO, error=None, **more):
    record = logging.LogRecord("recordpublisher.run", level, "file", 1, message, arguments, error)
    record.__dict__.update(more)
    return json.loads(JsonLines().format(record))


def test_a_line_has_time_level_logger_and_message():
    shown = line("worker %d ended", 3)

    assert shown["message"] == "worker 3 ended"
    assert (shown["level"], shown["logger"]) == ("INFO", "recordpublisher.run")
    assert shown["time"].endswith("+00:00")


def test_a_traceback_and_fields_are_part_of_the_object():
    try:
        int("two\nlines")
    except ValueError as error:
        shown = line("failed", error=(ValueError, error, error.__traceback__), fields={"progress": {"records": 5}})

    assert "ValueError: invalid literal" in shown["traceback"]
    assert shown["progress"] == {"records": 5}


def test_a_line_has_the_fields_of_its_task_and_its_own_come_first():
    with log_fields(process=3, stream="orders", shard="shardId-1"):
        of_task, own = line("read"), line("ended", **log_extra("copy/shardId-2"))

    assert (of_task["process"], of_task["stream"], of_task["shard"]) == (3, "orders", "shardId-1")
    assert (own["process"], own["stream"], own["shard"]) == (3, "copy", "shardId-2")
    assert not {"process", "stream", "shard"} & set(line("after"))


def test_a_line_about_a_stream_has_no_shard():
    assert "shard" not in line("deleted", **log_extra("orders"))


def test_a_json_line_has_what_the_user_gives_as_extra_and_keeps_its_own_names():
    loop = {}
    loop["itself"] = loop
    extra = {"order": 7, "price": Decimal("1.5"), "level": "mine", "loop": loop}
    line = json.loads(
        JsonLines().format(
            logging.getLogger("shop").makeRecord("shop", logging.INFO, "f", 1, "sold", (), None, extra=extra)
        )
    )

    assert (line["order"], line["price"], line["level"], line["message"]) == (7, "1.5", "INFO", "sold")
    assert "itself" in line["loop"]
    assert line.keys() == {"order", "price", "loop", "time", "level", "logger", "message"}


@pytest.mark.parametrize("fields", [["a", "b"], "a", None])
def test_fields_that_a_user_gives_as_extra_do_not_lose_the_line(fields):
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, "f", 1, "checked", (), None, extra={"fields": fields}
    )
    assert json.loads(JsonLines().format(record))["fields"] == fields
    assert TextLines().format(record).endswith("checked")


def test_a_number_that_json_cannot_have_is_a_text_of_the_line():
    extra = {"ratio": float("nan"), "all": [float("inf")]}
    record = logging.getLogger("shop").makeRecord("shop", logging.INFO, "f", 1, "x", (), None, extra=extra)
    line = json.loads(JsonLines().format(record), parse_constant=pytest.fail)
    assert (line["ratio"], line["all"]) == ("nan", "[inf]")
