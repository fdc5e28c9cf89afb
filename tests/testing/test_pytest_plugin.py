"""The pytest plugin: a job is tested in seven lines, a user's own fixtures win, and loading the plugin imports nothing else."""

import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

from recordpublisher import local, testing  # noqa: F401 - else each inner run of pytest would import them again

from processes.command_line import ROOT, process_environment

pytest_plugins = "pytester"
PLUGIN = "pytest_recordpublisher"
WITHOUT = ["-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "ignore::pytest.PytestAssertRewriteWarning"]

JOB = """
import recordpublisher as rp

def total(streams, properties):
    return sum(record.value["price"] for record in rp.consume(streams, properties, stop_at_tip=True))
"""
TEST_OF_THE_JOB = """
from shop import total

def test_prices_are_added_up(kinesis_stream, kinesis_properties):
    kinesis_stream.put({"price": 1}, {"price": 2})
    json = {"flink.deserializer": "json"}
    assert total([kinesis_stream.name], kinesis_properties | json) == 3
"""


@pytest.fixture
def inner(pytester):
    """Runs a test file in a run of pytest of its own; returns how its tests ended."""

    def run(source, **files):
        test = pytester.makepyfile(test_inner=source, **files)
        return pytester.runpytest_inprocess("-p", PLUGIN, *WITHOUT, test).parseoutcomes()

    return run


def test_a_jobs_test_has_seven_lines(inner):
    assert len(TEST_OF_THE_JOB.strip().splitlines()) <= 7

    assert inner(TEST_OF_THE_JOB, shop=JOB) == {"passed": 1}


def test_the_endpoint_is_empty_for_each_test(inner):
    assert inner("""
        import pytest

        @pytest.mark.parametrize("run", [1, 2])
        def test_it(run, kinesis_stream, kinesis):
            assert list(kinesis.endpoint.account.streams()) == ["orders"]
            kinesis_stream.put("text", b"bytes", [1], key="one-shard")
            shards = kinesis.endpoint.stream("orders").shards.values()
            assert sorted(len(shard.log) for shard in shards) == [0, 3]
    """) == {"passed": 2}


def test_a_users_own_endpoint_is_the_one_that_the_other_fixtures_use(inner):
    assert inner("""
        import pytest
        from recordpublisher.local import serve_in_thread

        @pytest.fixture
        def kinesis():
            with serve_in_thread(region="eu-west-1") as served:
                yield served

        def test_it(kinesis_stream, kinesis_properties):
            assert kinesis_properties["aws.region"] == "eu-west-1"
    """) == {"passed": 1}


def test_a_users_fixture_of_another_kind_wins_too(inner):
    assert inner("""
        import pytest

        @pytest.fixture
        def kinesis():
            return "a client of their own"

        def test_it(kinesis):
            assert kinesis == "a client of their own"
    """) == {"passed": 1}


def test_an_hour_of_virtual_time_passes_at_once(inner):
    assert inner("""
        import asyncio

        def test_it(run_virtual):
            async def job():
                await asyncio.sleep(3600)
                return asyncio.get_running_loop().time()

            assert run_virtual(job()) == 3600
    """) == {"passed": 1}


def test_loading_the_plugin_imports_nothing_else_of_the_library():
    script = f"""
import pytest, sys
before = set(sys.modules)
import {PLUGIN}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=process_environment(), capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [PLUGIN]


def test_pytest_is_told_of_the_plugin():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]

    assert declared == {PLUGIN: import_module(PLUGIN).__name__}
