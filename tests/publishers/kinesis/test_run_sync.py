import asyncio
import threading

import pytest

from recordpublisher.publishers.kinesis import run_sync


async def where():
    await asyncio.sleep(0)
    return threading.get_ident()


def test_without_a_loop_the_caller_runs_it_itself():
    assert run_sync(where()) == threading.get_ident()


async def test_inside_a_loop_a_thread_of_its_own_runs_it():
    assert run_sync(where()) != threading.get_ident()


async def test_errors_come_through():
    async def fails():
        raise KeyError("oh")

    with pytest.raises(KeyError, match="oh"):
        run_sync(fails())
