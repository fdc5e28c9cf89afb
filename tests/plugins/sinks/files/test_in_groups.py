"""The file sinks in a group: one failed answer of the folder stops no worker, and nothing is there twice."""

import asyncio
import errno

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.stores.folder_store import FolderStore


async def test_one_failed_answer_of_the_folder_does_not_stop_a_worker(tmp_path, monkeypatch, caplog):
    real, failed = FolderStore._compare_and_set, []

    def once_away(self, name, value, expected):
        if not str(self._root).endswith("entries") or b"shardId" not in value or failed:
            return real(self, name, value, expected)
        failed.append(name)
        real(self, name, value, expected)  # it takes effect, and the answer is lost
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(FolderStore, "_compare_and_set", once_away)
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put(*({"n": number} for number in range(10)))
        given = {
            **served.endpoint.properties(),
            "flink.job.workers": "GROUP",
            "flink.sink": "jsonl",
            "flink.sink.jsonl.path": str(tmp_path / "out"),
            "flink.state.uri": f"{tmp_path}/group",
            "flink.state.checkpoint.interval": 100,
            "flink.lease.duration": 2000,
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        async with rp.DataFetcher("orders", given) as fetcher:
            running = asyncio.create_task(fetcher.run())
            async with asyncio.timeout(60):
                while len(lines(tmp_path / "out")) < 10:  # noqa: ASYNC110 - the folder is what is looked at
                    await asyncio.sleep(0.1)
            fetcher.stop()
            await running
    assert failed
    assert len(lines(tmp_path / "out")) == 10
    assert f"the folder {tmp_path}/out" in caplog.text


def lines(folder):
    return [line for file in folder.glob("orders/*/*") for line in file.read_text().splitlines()]
