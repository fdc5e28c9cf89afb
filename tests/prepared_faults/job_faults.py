"""The faults of `faults.py` that are about a job: its store, its sink, its plugins."""

import asyncio
import itertools
import threading

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import ManualClock
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.stored_job import alone_worker, store_alone

HOUR_MS = 3_600_000
COPY = {"flink.sink": "kinesis", "flink.sink.kinesis.stream": "copy"}


def lag_that_reaches_the_retention(scene):
    clock = ManualClock(SystemClock().now_ms() - 22 * HOUR_MS)
    scene.serve(clock=clock)
    done, _ = (scene.served.call(scene.stream.put, data, "k") for data in (b"read", b"unread"))
    shard = next(each.id for each in scene.stream.shards.values() if len(each.log))
    asyncio.run(_store_position(scene.folder / "state", shard, done))
    scene.served.call(clock.advance, 22 * HOUR_MS)
    return {**COPY, "flink.state.uri": str(scene.folder / "state"), "flink.state.checkpoint.interval": 100}


async def _store_position(folder, shard, done):
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(done))
    await store_alone(FolderStore(folder), snapshot_to_json({f"orders/{shard}": state}, None, 1))


def store_at(uri):
    def prepare(scene):
        port = scene.unused_port()
        return {
            "flink.state.uri": uri.format(port=port),
            "flink.state.endpoint": f"http://127.0.0.1:{port}",
            "flink.job.name": "billing",
        }

    return prepare


def store_in_a_file(scene):
    (scene.folder / "state").write_text("")
    return {"flink.state.uri": str(scene.folder / "state")}


def process_that_stores(scene):
    """A process of another start stores a checkpoint of the job every 50 ms."""
    folder, stopped = scene.folder / "state", threading.Event()

    async def store():
        alone = alone_worker(FolderStore(folder))
        await alone.open()
        for taken in itertools.count():
            state = ShardState(StartingPosition.trim_horizon(), tip_ms=400_000 * taken)
            await alone.store(snapshot_to_json({"orders/shardId-000000000000": state}, None, 1, taken))
            if taken == 0:
                begun.set()
            if stopped.wait(0.05):
                return

    begun = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(store()))
    thread.start()
    scene.cleanup.callback(thread.join)
    scene.cleanup.callback(stopped.set)
    begun.wait(60)
    return {**COPY, "flink.state.uri": str(folder), "flink.state.checkpoint.interval": 100}


def sink_in_a_file(scene):
    (scene.folder / "rows").write_text("")
    return {}


def function_that_is_missing(scene):
    return {"flink.sink": "callback", "flink.sink.callback.function": "json:bill"}


def consumer_without_a_name(scene):
    return {"flink.stream.recordpublisher": "EFO"}


def publisher_that_is_broken(scene):
    install_plugin(
        scene,
        "broken_queue",
        "import recordpublisher as rp\n"
        "from recordpublisher.plugins.host.hookspecs import hookimpl\n"
        "class Factory(rp.RecordPublisherFactory):\n"
        "    def __init__(self, properties):\n"
        "        raise KeyError('queue.address')\n"
        "    async def create(self, shard, starting_position, metrics): ...\n"
        "    async def discover(self, stream): ...\n"
        "@hookimpl\n"
        "def recordpublisher_register_publishers(registry):\n"
        "    registry.add('broken', Factory)\n",
    )
    return {"flink.stream.recordpublisher": "broken"}


def store_that_is_unknown(scene):
    return {"flink.state.uri": "pigeon://state"}


def database_that_refuses(scene):
    uri = f"postgresql://me@127.0.0.1:{scene.unused_port()}/shop"
    return {"flink.sink": "sql", "flink.sink.sql.uri": uri, "flink.job.name": "billing"}


def target_that_is_missing(scene):
    return {**COPY, "flink.sink.kinesis.stream": "copies"}


def records_too_large_for_the_target(scene):
    scene.stream.max_record_bytes = 10 * 2**20
    return COPY


def sink_that_is_unknown(scene):
    return {"flink.sink": "jsnl"}


def publisher_that_is_unknown(scene):
    return {"flink.stream.recordpublisher": "NATS"}


def plugin_with_a_taken_name(scene):
    install_plugin(
        scene,
        "taken_name",
        "from recordpublisher.plugins.host.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def recordpublisher_register_sinks(registry):\n"
        "    registry.add('jsonl', 'taken_name:Sink')\n",
    )
    return {}


def install_plugin(scene, module, code):
    """Make a distribution with one module, which is a plugin."""
    (scene.folder / f"{module}.py").write_text(code)
    installed = scene.folder / f"{module}-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[recordpublisher]\n{module} = {module}\n")
    scene.environment.syspath_prepend(scene.folder)


def property_that_is_unknown(scene):
    return {"flink.stream.initpso": "LATEST"}


def java_that_is_missing(scene):
    pytest.importorskip("pyspark")
    scene.environment.setenv("JAVA_HOME", str(scene.folder))
    return {}
