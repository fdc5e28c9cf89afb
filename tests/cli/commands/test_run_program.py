"""`recordpublisher run shop:job`: a job that a program makes, started again by --reload when the program changes."""

import signal
import sqlite3
import time
from contextlib import closing

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import command, process_environment, sdk_environment
from processes.forked.command import PipedCommand

PROGRAM = """
import recordpublisher as rp

async def handle(record):
    with open("handled", "a") as file:
        file.write(f"VERSION {record.data.decode()}\\n")

job = rp.DataFetcher("orders", sink=rp.MapSink(handle), start="TRIM_HORIZON")
"""


@pytest.fixture
def orders():
    with serve_in_thread(streams={"orders": 1}) as served:
        yield served


def wait_for(path, lines):
    deadline = time.monotonic() + 90
    while not path.exists() or path.read_text().splitlines() != lines:
        assert time.monotonic() < deadline, path.exists() and path.read_text()
        time.sleep(0.1)


@pytest.mark.slow
def test_reload_starts_a_changed_program_where_the_one_before_stopped(orders, tmp_path):
    stream, handled = orders.stream("orders"), tmp_path / "handled"
    (tmp_path / "shop.py").write_text(PROGRAM.replace("VERSION", "first"))
    stream.put("1")
    running = PipedCommand(
        "run", "shop:job", "--reload", environment=process_environment(None, **sdk_environment(orders)), folder=tmp_path
    )
    try:
        wait_for(handled, ["first 1"])
        (tmp_path / "shop.py").write_text("broken(")
        time.sleep(1)
        (tmp_path / "shop.py").write_text(PROGRAM.replace("VERSION", "second"))
        stream.put("2")
        wait_for(handled, ["first 1", "second 2"])
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    finally:
        running.kill()


def test_a_program_that_stores_no_positions_is_warned(orders, tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM)
    done = command("run", "shop:job", "--stop-at-tip", folder=tmp_path, **sdk_environment(orders))

    assert done.returncode == 0
    assert done.stderr.count("no positions are stored: each start reads all records again") == 1


def test_a_program_runs_in_one_process(tmp_path):
    done = command("run", "shop:job", "--parallelism", "2", folder=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "option '--parallelism 2' cannot be combined with 'shop:job': a program runs in one process" in done.stderr


def test_a_module_that_is_not_there_is_named(tmp_path):
    done = command("run", "no_such_shop:job", folder=tmp_path)

    assert done.returncode == 2
    assert "No module named 'no_such_shop'" in done.stderr


def test_doctor_takes_a_program_and_leaves_its_sink_to_it(orders, tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM)
    done = command("doctor", "shop:job", "-p", "flink.sink.map.timeout=1s", folder=tmp_path, **sdk_environment(orders))

    assert "orders: kinesis:GetRecords  " in done.stdout, done.stderr
    assert "valid; flink.sink.map.timeout has no effect: the program makes the sink" in done.stdout
    assert ["not", "checked", "sink", "an", "object", "of", "the", "program"] in map(
        str.split, done.stdout.splitlines()
    )


TYPED = """
import msgspec
import recordpublisher as rp

class Order(msgspec.Struct):
    country: str

def decoded(record):
    return record.data.decode()

table = {"flink.sink.sql.uri": "sqlite:///shop.db", "flink.sink.sql.table": "orders", "flink.sink.sql.columns": "AUTO"}
job = rp.DataFetcher("orders", table, deserializer=Order, sink="sql", job_name="orders")
texts = rp.DataFetcher("orders", deserializer=decoded, sink=rp.MemorySink())
"""


def test_doctor_checks_the_values_that_the_programs_own_deserializer_makes(orders, tmp_path):
    (tmp_path / "shop.py").write_text(TYPED)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE orders (price TEXT)")
    job, texts = (
        " ".join(command("doctor", f"shop:{name}", folder=tmp_path, **sdk_environment(orders)).stdout.split())
        for name in ("job", "texts")
    )

    assert "ok plugins POLLING, BOUNDED, Order" in job
    assert "PROBLEM sink: values" in job
    assert "ADD COLUMN country" in job
    assert "ok plugins POLLING, BOUNDED, a deserializer of the program" in texts
