"""`lag` of a publisher that lists its streams itself shows what is stored: positions, and how old they are."""

import asyncio
import json
import re

import pytest
from typer.testing import CliRunner

import recordpublisher as rp
from recordpublisher.cli.app import app
from recordpublisher.plugins.host import plugin_loading

from fakes import memory_streams


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A job that has read two records of shard a, and none of shard b."""
    memory_streams.install(monkeypatch, {"a": [b"1", b"2"], "b": []})
    registry = plugin_loading.load_registry([memory_streams.Streams()])
    monkeypatch.setattr(plugin_loading, "load_registry", lambda: registry)
    given = {
        **memory_streams.PROPERTIES,
        "flink.streams": "orders",
        "flink.sink": "memory",
        "flink.state.uri": str(tmp_path / "state"),
    }

    async def run():
        async with rp.DataFetcher("orders", given) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    asyncio.run(run())
    file = tmp_path / "job.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return str(file)


def lag(*arguments):
    return CliRunner().invoke(app, ["lag", *arguments])


def test_positions_are_shown_with_the_ages_of_watermark_and_checkpoint(job):
    done = lag(job)

    assert done.exit_code == 0
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["SHARD", "WORKER", "POSITION", "WATERMARK", "STORED"]
    assert re.fullmatch(r"orders/a +[0-9a-f]{16} +1 +[\d.]+ d +[\d.]+ m?s *", first)
    assert re.fullmatch(r"orders/b +[0-9a-f]{16} +- +- +[\d.]+ m?s *", second)
    assert (
        "only streams of Kinesis can be asked for their newest records: the lag is not known. `lag --live URL`"
        in done.stderr
    )


def test_json_has_the_position_and_no_lag(job):
    lines = [json.loads(line) for line in lag(job, "--json").stdout.splitlines()]

    assert [(line["shard"], line["position"], line["lagMs"], line["unread"]) for line in lines] == [
        ("a", "1", None, None),
        ("b", None, None, None),
    ]


def test_no_alarm_can_be_checked(job):
    done = lag(job, "--check")

    assert done.exit_code == 2
    assert "or without --check a job that stores its positions" in done.stderr
