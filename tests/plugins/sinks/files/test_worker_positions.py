"""Commits of the file sinks in a group: each belongs to the worker that began it, and one that failed ends its life."""

import asyncio
import errno
import threading

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.sinks.files.worker_positions import FileWorkerPositions
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.publishers.errors import FencedError


def positions_of(folder, files):
    """The positions of a sink that has these files, and nothing else."""

    async def commit_files(store, shards):
        await store(files)

    return FileWorkerPositions(folder, commit_files, lambda: None)


async def test_a_slow_commit_of_a_worker_that_was_replaced_is_fenced_and_leaves_the_next_one_alone(tmp_path):
    disk = threading.Event()
    files = {"orders/a/1-2.jsonl": lambda path: (disk.wait(30), path.write_text("slow"))}
    kept = positions_of(tmp_path, files)
    await kept.join("first")
    slow = asyncio.ensure_future(kept.commit({"positions": {"a": 2}}, None))
    await asyncio.sleep(0.05)
    await kept.seal("first")
    await kept.join("second")
    disk.set()
    with pytest.raises(FencedError, match="worker first was sealed"):
        await slow
    assert await kept.read("second") is None
    assert not list(tmp_path.glob("orders/*/*"))

    await kept.commit({"positions": {"a": 2}}, None)
    assert await kept.read("second") == {"positions": {"a": 2}}
    assert [file.read_text() for file in tmp_path.glob("orders/*/*")] == ["slow"]


async def test_one_failed_answer_of_the_folder_does_not_stop_a_worker(tmp_path, monkeypatch, caplog):
    real, failed = FolderStore._compare_and_set, []

    def once_away(self, name, value, expected):
        if str(self._root).endswith("workers") and b"shardId" in value and not failed:
            failed.append(name)
            raise OSError(errno.EIO, "Input/output error")
        return real(self, name, value, expected)

    monkeypatch.setattr(FolderStore, "_compare_and_set", once_away)
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put(*({"n": number} for number in range(10)))
        given = {
            **served.endpoint.properties(),
            "flink.shard.assignment": "ELASTIC",
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
    assert "a commit of the sink may or may not be stored" in caplog.text


def lines(folder):
    return [line for file in folder.glob("orders/*/*") for line in file.read_text().splitlines()]
