"""The event loop of a Python worker process: one for each process, never a forked copy; and its log level."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time

import pytest

from recordpublisher.plugins.spark.python_worker import LOG_VARIABLE, WorkerLoop, log_to_stderr, worker_loop
from recordpublisher.publishers.errors import ConfigurationError, StateError


async def loop_of() -> object:
    return asyncio.get_running_loop()


def test_one_process_has_one_loop():
    assert worker_loop().run(loop_of()) is worker_loop().run(loop_of())


def test_an_error_on_the_loop_is_raised_by_run():
    async def fail() -> None:
        raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        worker_loop().run(fail())


def test_a_cached_object_is_made_once():
    made = [worker_loop().cached("key", object) for _ in range(2)]
    assert made[0] is made[1]


@pytest.mark.slow
def test_the_heap_is_frozen_after_the_second_batch_and_not_again():
    gc.unfreeze()
    loop = WorkerLoop()
    loop.freeze_heap()
    assert gc.get_freeze_count() == 0
    loop.freeze_heap()
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]
    loop.freeze_heap()

    assert frozen > len(kept)
    assert gc.get_freeze_count() <= frozen
    gc.unfreeze()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_a_loop_of_its_own():
    worker_loop()
    child = os.fork()
    if child == 0:
        os._exit(0 if worker_loop().pid == os.getpid() and worker_loop().run(loop_of()) is not None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_background_errors_are_logged_our_own_without_a_traceback(caplog):
    async def fail(error: Exception) -> None:
        raise error

    for error in (StateError("no such folder"), KeyError("a bug")):
        with pytest.raises(type(error)):
            worker_loop().run_in_background(fail(error)).result()
    deadline = time.monotonic() + 60
    while len(caplog.records) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    ours, bug = caplog.records
    assert (ours.getMessage(), ours.exc_info) == (
        "a background call of the Spark source failed; the query continues without it: StateError: no such folder",
        None,
    )
    assert bug.exc_info is not None


@pytest.fixture
def log_level():
    ours = logging.getLogger("recordpublisher")
    before = ours.level
    yield lambda: ours.level
    ours.setLevel(before)


def test_the_log_level_is_taken_from_the_environment(monkeypatch, log_level):
    monkeypatch.setenv(LOG_VARIABLE, "info")
    log_to_stderr()
    assert log_level() == logging.INFO


def test_c2_an_invalid_log_level_names_the_variable_and_what_is_valid(monkeypatch, log_level):
    monkeypatch.setenv(LOG_VARIABLE, "verbose")
    with pytest.raises(ConfigurationError, match=f"{LOG_VARIABLE}.*'verbose'.*DEBUG, INFO"):
        log_to_stderr()
