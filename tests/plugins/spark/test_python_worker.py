"""The loop of a worker process: one, warm, and never a forked copy."""

from __future__ import annotations

import asyncio
import gc
import os
import time

import pytest

from recordpublisher.plugins.spark.python_worker import WorkerLoop, worker_loop
from recordpublisher.publishers.errors import StateError


async def loop_of() -> object:
    return asyncio.get_running_loop()


def test_one_process_has_one_loop():
    assert worker_loop().run(loop_of()) is worker_loop().run(loop_of())


def test_an_error_on_the_loop_is_raised_here():
    async def fail() -> None:
        raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        worker_loop().run(fail())


def test_warm_things_are_made_once():
    made = [worker_loop().cached("key", object) for _ in range(2)]
    assert made[0] is made[1]


def test_what_is_there_when_all_is_warm_is_not_looked_through_again():
    gc.unfreeze()
    loop = WorkerLoop()
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


def test_what_ends_work_in_the_background_is_a_sentence_in_the_log_if_it_is_one_of_ours(caplog):
    async def fail(error: Exception) -> None:
        raise error

    for error in (StateError("no such folder"), KeyError("a bug")):
        with pytest.raises(type(error)):
            worker_loop().start(fail(error)).result()
    deadline = time.monotonic() + 60
    while len(caplog.records) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    ours, bug = caplog.records
    assert (ours.getMessage(), ours.exc_info) == ("work in the background failed: StateError: no such folder", None)
    assert bug.exc_info is not None
