"""No record that a producer can put ends a job that skips bad records, or sends them away (S7): from the bytes to each sink.

RECORDS=1000000 make hostile        many, FIRST=... for another seed
"""

import os

import pytest
from hostile.path_to_sinks import POLICIES, SINKS, HostileStreams, run_through

from recordpublisher.plugins.host.plugin_loading import load_registry

from random_inputs import inputs

QUICK, MANY = inputs(1_000, 200), "1000000"


@pytest.fixture(autouse=True)
def _streams(monkeypatch):
    for module in ("data_fetcher", "bounded_reader"):
        monkeypatch.setattr(
            f"recordpublisher.plugins.runtime.{module}.load_registry", lambda: load_registry([HostileStreams()])
        )


async def assert_all_accounted_for(kind, policy, seed, count, folder):
    outcome = await run_through(kind, policy, seed, count // 2, folder)

    assert outcome.read == outcome.written + outcome.skipped + outcome.dead_letters
    assert min(outcome.written, outcome.skipped if policy == "SKIP" else outcome.dead_letters) > count // 20
    assert set(outcome.last_positions.values()) <= {"SHARD_END", str(count // 2 - 1)}
    return outcome


@pytest.mark.random
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", SINKS)
async def test_s7_each_hostile_record_is_written_skipped_or_a_dead_letter(kind, policy, seed, tmp_path):
    await assert_all_accounted_for(kind, policy, seed, QUICK, tmp_path)


@pytest.mark.hostile
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SINKS)
async def test_s7_many_hostile_records(kind, tmp_path):
    first, count = int(os.environ.get("FIRST", "100")), int(os.environ.get("RECORDS", MANY)) // len(SINKS)
    for part, start in enumerate(range(0, count, 20_000)):
        folder = tmp_path / str(part)
        folder.mkdir()
        outcome = await assert_all_accounted_for(
            kind, POLICIES[part % 2], first + part, min(20_000, count - start), folder
        )
        print(f"{kind} seed {first + part}: {outcome}")
