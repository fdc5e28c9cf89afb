"""The picture is drawn from the log."""

import pytest

from outage.results.event_log import EventLog
from outage.results.sample_reports import alarm, report, shard_report

pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")


@pytest.mark.slow
def test_a_log_becomes_a_png(tmp_path):
    from outage.results.plot import draw

    log = EventLog(0.0)
    for tick in range(20):
        held = {"held": tick > 10, "nextWatermark": 90_000 if tick > 10 else None}
        log.add_message(report(tick / 5, 0, {"s/a": shard_report(tick * 6_000, **held)}, tick * 5_000))
        if not 5 < tick < 15:
            log.add_message(report(tick / 5, 1, {"s/b": shard_report(None, idle=True)}))
    log.add_action(1.0, "worker 1 is stopped", 1)
    log.add_message(alarm(3.0, 0, "s/a"))
    path = tmp_path / "new" / "replay.png"

    draw(log, "A replay", "minutes", path)

    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
