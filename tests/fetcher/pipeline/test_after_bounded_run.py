"""After a bounded run its bounds do not count any more: every shard counts for watermarks again (W5)."""

from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


def test_a_shard_that_ended_in_a_bounded_run_holds_the_watermark_for_its_child_elsewhere():
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("a", 1, 2, 3)
    source.add("z", *range(1, 20))
    source.split("a", "b")

    async def job():
        of_another = {"b": 1}
        fetcher = make_fetcher(
            source,
            sink,
            assigner=lambda shard, parallelism: of_another.get(shard.shard_id, 0),
            parallelism=2,
            is_endless=lambda stream: True,
        )
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=5))
        return fetcher.metrics()["subtask"]["blockingShard"]

    assert run_virtual(job()) == "s/a"
