"""The picture is drawn from what was recorded."""

import pytest

from recordpublisher.demo.outage.event_log import Recording

from fakes.outage_reports import alarm, report, shard_report

pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")


def test_a_play_becomes_a_png(tmp_path):
    from recordpublisher.demo.outage.plot import draw

    recording = Recording(0.0)
    for tick in range(20):
        held = {"held": tick > 10, "headWatermark": 90_000 if tick > 10 else None}
        recording.hear(report(tick / 5, 0, {"s/a": shard_report(tick * 6_000, **held)}, tick * 5_000))
        if not 5 < tick < 15:
            recording.hear(report(tick / 5, 1, {"s/b": shard_report(None, idle=True)}))
    recording.act(1.0, "subtask 1 is stopped", 1)
    recording.hear(alarm(3.0, 0, "s/a"))
    path = tmp_path / "new" / "play.png"

    draw(recording, "A play", "minutes", path)

    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
