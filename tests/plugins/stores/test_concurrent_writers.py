"""Writers in threads and processes: conditions hold when calls really overlap."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from processes.store_writers import WRITES, count, put, put_and_delete, read

LOCATIONS = {"folder": "{folder}/values", "sqlite": "sqlite:///{folder}/values.db", "postgresql": ""}
WRITERS = 3


@pytest.fixture(params=LOCATIONS)
def location(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql"), tmp_path.name
    return LOCATIONS[request.param].format(folder=tmp_path), "job"


@pytest.fixture
def threads():
    with ThreadPoolExecutor(WRITERS) as made:
        yield made


@pytest.fixture
def processes():
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("forkserver")) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("pool_name", ["threads", "processes"])
def test_no_increment_of_a_shared_counter_is_lost(request, location, pool_name):
    pool = request.getfixturevalue(pool_name)
    conflicts = [future.result() for future in [pool.submit(count, *location, WRITERS) for _ in range(WRITERS)]]
    assert read(*location)["a/counter"] == b"%d" % (WRITERS * WRITES)
    assert sum(conflicts) >= WRITERS - 1


@pytest.mark.slow
def test_every_name_has_one_first_writer(location, threads):
    writers = [b"%d" % number for number in range(WRITERS)]
    won = [future.result() for future in [threads.submit(put, *location, mine) for mine in writers]]
    assert sorted(number for numbers in won for number in numbers) == list(range(WRITES))
    for mine, numbers in zip(writers, won, strict=True):
        assert all(read(*location)[f"a/{number}/name"] == mine for number in numbers)


@pytest.mark.slow
def test_concurrent_deletes_and_writes_raise_only_conflicts(location, threads):
    writers = [b"writer %d " % number for number in range(WRITERS)]
    for future in [threads.submit(put_and_delete, *location, mine) for mine in writers]:
        future.result()
    assert read(*location) == {}
