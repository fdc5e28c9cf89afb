"""A blocking call in a thread: the caller waits only as long as it likes, and gets the result later."""

from __future__ import annotations

import threading
import time

import pytest

from recordpublisher.plugins.spark.source.patient_planner import BackgroundCall

LONG = 60.0


def test_a_result_and_an_error_are_those_of_the_call():
    calls = BackgroundCall()
    assert calls.result("a", lambda: 7, LONG) == 7
    with pytest.raises(ZeroDivisionError):
        calls.result("b", lambda: 1 // 0, LONG)


def test_a_call_that_runs_is_not_made_again_and_its_result_comes_later():
    calls, may_end, begun = BackgroundCall(), threading.Event(), []

    def call() -> str:
        begun.append(1)
        may_end.wait(LONG)
        return "done"

    for _ in range(3):
        with pytest.raises(TimeoutError):
            calls.result("a", call, 0.0)
    may_end.set()
    assert calls.result("a", call, LONG) == "done"
    assert begun == [1]


def test_a_call_of_another_name_begins_after_the_running_one():
    calls, may_end = BackgroundCall(), threading.Event()
    order: list[str] = []

    def first() -> None:
        may_end.wait(LONG)
        order.append("first")

    for name, call in (("a", first), ("b", lambda: order.append("never"))):
        with pytest.raises(TimeoutError):
            calls.result(name, call, 0.0)
    may_end.set()
    calls.result("c", lambda: order.append("second"), LONG)
    assert order == ["first", "second"]


def test_waiting_for_the_running_call_and_for_its_own_share_one_limit():
    calls, may_end, limit = BackgroundCall(), threading.Event(), 1.0
    with pytest.raises(TimeoutError):
        calls.result("a", lambda: may_end.wait(LONG), 0.0)
    threading.Timer(0.6 * limit, may_end.set).start()  # the running call takes more than half of the time
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        calls.result("b", lambda: threading.Event().wait(LONG), limit)
    assert time.monotonic() - began < 1.4 * limit
