"""`recordpublisher run` with a bound, as cron and CI start it: what is stored, the exit code, and which bounds a job cannot have."""

import time

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import command, sdk_environment
from processes.job_files import job_file

PROGRAM = """
import recordpublisher as rp

def handle(record):
    with open("handled", "a") as file:
        file.write(record.data.decode() + "\\n")

job = rp.DataFetcher("orders", sink=rp.MapSink(handle))
"""


@pytest.fixture
def orders():
    with serve_in_thread(streams={"orders": 2}) as served:
        yield served


@pytest.fixture
def job(tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM)
    return job_file(
        tmp_path,
        {
            "flink.streams": "orders",
            "flink.sink": "map",
            "flink.sink.map.function": "shop:handle",
            "flink.state.uri": str(tmp_path / "state"),
        },
    )


def run(served, tmp_path, *arguments):
    done = command("run", *arguments, folder=tmp_path, **sdk_environment(served))
    handled = tmp_path / "handled"
    lines = sorted(handled.read_text().split()) if handled.exists() else []
    handled.unlink(missing_ok=True)
    return done, lines


@pytest.mark.parametrize("kind", ["file", "program"])
def test_each_run_to_the_tip_handles_what_is_new_and_exits_0(orders, job, tmp_path, kind):
    stream = orders.stream("orders")
    which = [str(job)] if kind == "file" else ["shop:job", "-p", f"flink.state.uri={tmp_path}/state"]
    for number in "123":
        stream.put(number)
    done, handled = run(orders, tmp_path, *which, "--stop-at-tip")
    assert (done.returncode, handled) == (0, ["1", "2", "3"]), done.stderr
    assert "the job ended: TIP, 3 records to the sink" in done.stderr

    stream.put("4")
    done, handled = run(orders, tmp_path, *which, "--stop-at-tip")
    assert (done.returncode, handled) == (0, ["4"]), done.stderr


def test_new_columns_of_a_folder_are_told(orders, tmp_path):
    orders.stream("orders").put('{"id": 1}')
    given = {"flink.streams": "orders", "flink.sink": "parquet", "flink.sink.parquet.path": "lake"}
    inferred = {
        "flink.deserializer": "json",
        "flink.deserializer.schema": "INFER",
        "flink.stream.initpos": "TRIM_HORIZON",
    }
    done, _ = run(orders, tmp_path, str(job_file(tmp_path, given | inferred)), "--stop-at-tip")
    assert " INFO recordpublisher.columns: new or wider columns of lake: id BIGINT\n" in done.stderr


def test_a_number_of_records_is_exact_and_the_next_run_goes_on(orders, job, tmp_path):
    for number in range(10):
        orders.stream("orders").put(str(number))
    first, some = run(orders, tmp_path, str(job), "--max-records", "4")
    second, rest = run(orders, tmp_path, str(job), "--stop-at-tip")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (len(some), sorted(some + rest)) == (4, [str(number) for number in range(10)])


def test_until_a_time_leaves_later_records_to_the_next_run(orders, job, tmp_path):
    orders.stream("orders").put("early")
    time.sleep(0.01)
    between = time.time() + 0.01
    time.sleep(0.02)
    orders.stream("orders").put("late")
    done, handled = run(orders, tmp_path, str(job), "--until", f"{between:.3f}")
    assert (done.returncode, handled) == (0, ["early"]), done.stderr

    assert run(orders, tmp_path, str(job), "--stop-at-tip")[1] == ["late"]


def test_a_run_whose_handler_fails_before_the_bound_exits_1(orders, job, tmp_path):
    (tmp_path / "shop.py").write_text("def handle(record):\n    raise LookupError('no such order')\n")
    orders.stream("orders").put("1")
    done, _ = run(orders, tmp_path, str(job), "--stop-at-tip", "-p", "flink.sink.map.retries=0")

    assert done.returncode == 1
    assert "no such order" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--stop-at-tip", "--parallelism", "2"],
            "option '--stop-at-tip' cannot be combined with '--parallelism 2': the processes share the shards, and none knows",
        ),
        (
            ["--max-records", "5", "--group"],
            "option '--max-records' cannot be combined with 'flink.job.workers=GROUP': the workers of a group share the shards",
        ),
        (["--until", "yesterday"], "option '--until' is 'yesterday'"),
        (["--max-records", "0"], "--max-records"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused_before_anything_is_read(job, tmp_path, options, said):
    done = command("run", str(job), *options, folder=tmp_path)

    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "state").exists()


def test_a_queue_has_no_order_in_time_so_until_is_refused(tmp_path):
    job = job_file(
        tmp_path, {"flink.streams": "orders", "flink.stream.recordpublisher": "QUEUE", "flink.sink": "memory"}
    )
    done = command("run", str(job), "--until", "2026-11-22T06:00:00Z", folder=tmp_path)

    assert done.returncode == 2
    assert "--until" in done.stderr
    assert "a queue keeps no order in time" in done.stderr


@pytest.mark.slow
def test_a_queue_is_read_until_it_is_empty_or_for_so_many_records(orders, job, tmp_path):
    access = sdk_environment(orders)
    assert command("create", "work", "--on-demand", **access).returncode == 0
    assert command("put", "work", stdin="1\n2\n3\n", **access).returncode == 0
    queue = {
        "flink.streams": "work",
        "flink.stream.recordpublisher": "QUEUE",
        "flink.queue.name": "all-work",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.sink": "map",
        "flink.sink.map.function": "shop:handle",
        "flink.sink.map.ordering": "NONE",
    }
    of_queue = job_file(tmp_path, queue, "queue.properties")
    first, one = run(orders, tmp_path, str(of_queue), "--max-records", "1")
    # Processes share a queue without a group, so that --group is accepted as --parallelism is, and changes nothing.
    second, rest = run(orders, tmp_path, str(of_queue), "--stop-at-tip", "--group")
    third, none = run(orders, tmp_path, str(of_queue), "--stop-at-tip")

    assert [each.returncode for each in (first, second, third)] == [0, 0, 0], first.stderr + second.stderr
    assert (len(one), sorted(one + rest), none) == (1, ["1", "2", "3"], [])
