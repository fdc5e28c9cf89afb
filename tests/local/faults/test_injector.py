import pytest

from recordpublisher.local import Faults, StreamFault
from recordpublisher.local.api_errors import ApiError


@pytest.fixture
def faults() -> Faults:
    return Faults()


def test_the_planned_number_of_calls_of_an_operation_fails(faults: Faults):
    faults.fail_next("GetRecords", "InternalFailure", 2, status=500)
    faults.before_call("ListShards")
    for _ in range(2):
        with pytest.raises(ApiError, match="InternalFailure") as raised:
            faults.before_call("GetRecords")
        assert raised.value.status == 500
    faults.before_call("GetRecords")


def test_a_call_can_lose_its_connection(faults: Faults):
    faults.drop_next("GetRecords")
    with pytest.raises(ConnectionAbortedError):
        faults.before_call("GetRecords")
    faults.before_call("GetRecords")


def test_a_stream_fault_applies_once_to_its_subscription(faults: Faults):
    faults.fail_subscription(StreamFault.CUT, shard_id="s2", consumer="c")
    assert faults.for_subscription("c", "s1") is None
    assert faults.for_subscription("d", "s2") is None
    planned = faults.for_subscription("c", "s2")
    assert planned is not None
    assert planned.fault is StreamFault.CUT
    assert faults.for_subscription("c", "s2") is None


def test_a_planned_fault_wakes_the_subscriptions(faults: Faults):
    woken: list[str] = []
    faults.on_plan(lambda: woken.append("up"))
    faults.fail_subscription(StreamFault.END)
    assert woken == ["up"]


def test_how_many_calls_are_still_to_fail(faults: Faults):
    faults.fail_next("ListShards", "LimitExceededException", 2)
    before = faults.planned("ListShards")
    with pytest.raises(ApiError):
        faults.before_call("ListShards")

    assert (before, faults.planned("ListShards"), faults.planned("GetRecords")) == (2, 1, 0)
