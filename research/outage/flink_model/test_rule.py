"""The counter-example: Flink's old rule, with the defects that it had."""

from outage.flink_model.rule import FlinkCoordinator, FlinkShard, FlinkSubtask

IDLE = 1_500


def shard(emitted=None, head=None, queued=0, updated_ms=0):
    return FlinkShard(emitted, head, queued, updated_ms)


def working(watermark=100):
    """A subtask that has emitted up to a watermark and has sent it."""
    subtask = FlinkSubtask(IDLE)
    subtask.emit_watermark([shard(watermark)], 0)
    subtask.watermark_to_send()
    subtask.receive_global_watermark(watermark)
    return subtask


def test_a_working_subtask_sends_its_lowest_head():
    subtask = FlinkSubtask(IDLE)
    subtask.emit_watermark([shard(100, head=120, queued=1), shard(110)], 0)

    assert subtask.watermark_to_send() == 110


def test_it_sends_again_even_when_nothing_is_new_while_it_is_not_idle():
    subtask = working()

    assert subtask.watermark_to_send() == 100


def test_a_process_that_was_stopped_is_idle_as_soon_as_it_runs_again():  # where W3 asks for evidence
    subtask = working()
    subtask.emit_watermark([shard(100, updated_ms=0)], 6_000)

    assert subtask.is_idle


def test_an_idle_subtask_with_nothing_new_sends_nothing_and_its_limit_freezes():  # FLINK-29099
    subtask = working()
    subtask.emit_watermark([shard(100)], 6_000)

    assert subtask.watermark_to_send() is None
    assert subtask.last_global == 100


def test_a_shard_that_has_emitted_nothing_does_not_count_however_full_its_queue_is():
    subtask = working()
    subtask.emit_watermark([shard(100), shard(None, head=700, queued=50, updated_ms=6_000)], 6_000)

    assert subtask.is_idle
    assert subtask.watermark_to_send() is None


def test_only_an_emission_ends_idleness():
    subtask = working()
    subtask.emit_watermark([shard(100)], 6_000)
    subtask.emit_watermark([shard(100, head=130, queued=1, updated_ms=6_100)], 6_100)
    assert subtask.is_idle

    subtask.emit_watermark([shard(130, updated_ms=6_200)], 6_200)
    assert not subtask.is_idle


def test_the_coordinator_goes_back_when_it_receives_a_lower_value():  # where W6 never does
    coordinator = FlinkCoordinator(timeout_ms=2_000)
    assert coordinator.update(0, 500, now_ms=0) == 500
    assert coordinator.update(1, 200, now_ms=100) == 200


def test_the_coordinator_excludes_a_subtask_silent_for_the_timeout():
    coordinator = FlinkCoordinator(timeout_ms=2_000)
    coordinator.update(1, 200, now_ms=0)

    assert coordinator.update(0, 500, now_ms=2_000) == 200
    assert coordinator.update(0, 500, now_ms=2_001) == 500
