import asyncio
import threading

import pytest

from recordpublisher.publishers.kinesis import run_sync


async def current_thread():
    await asyncio.sleep(0)
    return threading.get_ident()


def test_without_a_loop_the_coroutine_runs_in_the_callers_thread():
    assert run_sync(current_thread()) == threading.get_ident()


async def test_inside_a_loop_the_coroutine_runs_in_another_thread():
    assert run_sync(current_thread()) != threading.get_ident()


async def test_errors_are_raised_to_the_caller():
    async def fails():
        raise KeyError("oh")

    with pytest.raises(KeyError, match="oh"):
        run_sync(fails())
