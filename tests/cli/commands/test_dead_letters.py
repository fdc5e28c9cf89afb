"""`recordpublisher dead-letters`: what the commands print, and how they exit."""

import json
from types import SimpleNamespace

import pytest

from recordpublisher.cli.commands.dead_letters import _kind_of_reason, _reason_alone
from recordpublisher.local import serve_in_thread

from processes.command_line import command, several_commands

HANDLER = """
import pathlib
def handle(record):
    if record.value["price"] is None:
        raise ValueError("no price")
    with open(pathlib.Path(__file__).with_name("sold"), "a") as file:
        file.write(f"{record.value['price']}\\n")
"""
PROGRAM = """
import asyncio
import pathlib
import msgspec
import recordpublisher as rp

class Order(msgspec.Struct):
    price: int | None

async def handle(order: Order):
    if order.price is None:
        await asyncio.sleep(3600)
    pathlib.Path(__file__).with_name("sold_by_program").write_text(str(order.price))

settings = {"aws.region": "eu-west-1", "flink.deserializer.error": "DEAD_LETTER", "flink.deadletter.sink": "jsonl"}
settings["flink.deadletter.jsonl.path"] = str(pathlib.Path(__file__).with_name("of_program"))
sink = rp.MapSink(handle, timeout=0.2, retries=0, max_age=60)
job = rp.DataFetcher("orders", settings, sink=sink, deserializer=Order)
other = rp.DataFetcher("orders", settings, sink=rp.MemorySink(), deserializer=Order)
"""
ARRIVAL = "2026-11-26T06:00:00.000+00:00"


def line(number, payload, **value):
    numbers = {"sequenceNumber": number, "subSequenceNumber": -1, "partitionKey": "k"}
    record = {"stream": "orders", "shardId": "shardId-0", **numbers, "approximateArrivalTimestamp": ARRIVAL}
    return json.dumps({**record, "eventTime": 0, "value": {"error": "no price", "payload": payload, **value}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "shop_of_command.py").write_text(HANDLER)
    letters = folder / "letters/orders/shardId-0"
    letters.mkdir(parents=True)
    payloads = [line("7", '{"price": 5}'), line("8", '{"price": null}'), line("9", "/w==", base64=True)]
    (letters / "7-9.jsonl").write_text("\n".join([*payloads, ""]))
    (folder / "shop_program.py").write_text(PROGRAM)
    (folder / "of_program").mkdir()
    (folder / "of_program/1.jsonl").write_text("\n".join([*payloads[:2], ""]))
    return folder


@pytest.fixture(scope="module")
def results(folder):
    given = {
        "flink.streams": "orders",
        "flink.deserializer": "json",
        "flink.deserializer.error": "DEAD_LETTER",
        "flink.deadletter.sink": "jsonl",
        "flink.deadletter.jsonl.path": f"{folder}/letters",
        "flink.sink": "map",
        "flink.sink.map.function": "shop_of_command:handle",
        "flink.sink.map.retries": "0",
    }
    unread_job = folder / "unread.properties"
    (folder / "unread").mkdir()
    (folder / "unread/1.jsonl").write_text("[]\n")
    changed = given | {"flink.deadletter.jsonl.path": f"{folder}/unread"}
    unread_job.write_text("\n".join(f"{key}={value}" for key, value in changed.items()))
    (folder / "mended").mkdir()
    (folder / "mended/1.jsonl").write_text("\n".join([line("7", '{"price": null}'), line("8", '{"price": null}'), ""]))
    mended_job = folder / "mended.properties"
    changed = given | {"flink.deadletter.jsonl.path": f"{folder}/mended"}
    mended_job.write_text("\n".join(f"{key}={value}" for key, value in changed.items()))
    payload = {"shard": "orders/shardId-0", "sequenceNumber": "8", "error": "no price", "payload": '{"price": 70}'}
    (folder / "mended_payloads.jsonl").write_text(json.dumps(payload) + "\n")
    (folder / "bad_payloads.jsonl").write_text(json.dumps(payload) + "\n{}\n")
    job = folder / "job.properties"
    job.write_text("\n".join(f"{key}={value}" for key, value in given.items()))
    commands = {
        "list": ["list", str(job), "--limit", "2"],
        "list all": ["list", str(job), "--limit", "2", "--all"],
        "list queue": ["list", str(job), "--queue", "-p", "flink.stream.recordpublisher=DYNAMODB_STREAMS"],
        "list json": ["list", str(job), "--json", "--limit", "2"],
        "show": ["show", str(job), "9"],
        "show nothing": ["show", str(job), "10"],
        "replay": ["replay", str(job)],
        "left": ["list", str(job)],
        "replay one": ["replay", str(job), "--only", "8"],
        "replay another": ["replay", str(job), "--only", "7"],
        "replay unread": ["replay", str(unread_job)],
        "replay program": ["replay", "shop_program:job"],
        "replay other program": ["replay", "shop_program:other"],
        "replay bad payloads": ["replay", str(mended_job), "--payloads", "bad_payloads.jsonl"],
        "replay payloads": ["replay", str(mended_job), "--payloads", "mended_payloads.jsonl"],
        "replay payloads of a queue": ["replay", str(job), "--queue", "--payloads", "mended_payloads.jsonl"],
        "left after payloads": ["list", str(mended_job)],
        "drop": ["drop", str(job), "123", "8", "124"],
        "left after drop": ["list", str(job)],
        "drop nothing": ["drop", str(job)],
        "drop both": ["drop", str(job), "9", "--all", "--yes"],
        "drop all": ["drop", str(job), "--all"],
        "left without yes": ["list", str(job)],
        "drop all --yes": ["drop", str(job), "--all", "--yes"],
        "left after all": ["list", str(job)],
        "drop unread": ["drop", str(unread_job), "--all", "--yes"],
    }
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        done = several_commands(endpoint, *(["dead-letters", *each] for each in commands.values()), cwd=folder)
    return dict(zip(commands, done, strict=True))


def test_letters_are_listed_up_to_the_limit(results):
    head, *rows = results["list"].stdout.splitlines()
    assert head.split() == ["SHARD", "SEQUENCE", "NUMBER", "ARRIVED", "REASON"]
    assert [row.split() for row in rows] == [
        ["orders/shardId-0", number, "2026-11-26T06:00:00Z", "no", "price"] for number in ("7", "8")
    ]


def test_a_list_says_how_many_there_are_and_why(results):
    told = results["list"].stderr
    assert "3 dead letters, 2 are listed; --all lists every one." in told
    assert "3 dead letters." in results["list all"].stderr
    assert len(results["list all"].stdout.splitlines()) == 4


def test_only_a_queue_has_dead_letters_of_its_own(results):
    done = results["list queue"]
    told = "'flink.stream.recordpublisher' is 'DYNAMODB_STREAMS': --queue is for the dead letters that SQS keeps of a queue"
    assert (done.returncode, told in done.stderr) == (2, True)


def test_letters_are_listed_as_json_with_their_payloads(results):
    found = [json.loads(line) for line in results["list json"].stdout.splitlines()]
    assert [(each["sequenceNumber"], each["error"]) for each in found] == [("7", "no price"), ("8", "no price")]
    assert all("payload" in each for each in found)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("field 'price' of record 7 is 12", "field ... of record ... is ..."),
        (None, "no reason is stored"),
        ("x" * 300, "x" * 200),
    ],
)
def test_reasons_that_differ_in_values_alone_are_one_kind(reason, kind):
    assert _kind_of_reason(SimpleNamespace(reason=reason)) == kind


def test_the_reason_in_the_table_does_not_repeat_the_columns_before_it():
    letter = SimpleNamespace(reason="record 9 of orders/shardId-0 cannot be deserialized: no JSON", number="9")
    letter.shard = SimpleNamespace(key="orders/shardId-0")
    assert _reason_alone(letter) == "cannot be deserialized: no JSON"


def test_a_letter_is_shown_with_its_payload(results):
    assert json.loads(results["show"].stdout) == {
        "shard": "orders/shardId-0",
        "sequenceNumber": "9",
        "arrived": "2026-11-26T06:00:00Z",
        "partitionKey": "k",
        "error": "no price",
        "payload": "/w==",
        "base64": True,
    }


def test_a_letter_that_is_not_there_is_an_error(results):
    done = results["show nothing"]
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no dead letter with the number 10" in done.stderr


def test_a_replay_names_what_failed_again_and_exits_with_1(results, folder):
    done = results["replay"]
    assert done.returncode == 1
    undecoded, failed, last = sorted(done.stdout.splitlines(), key=lambda text: (text[0] != "r", text))
    assert undecoded.startswith("record 9 of orders/shardId-0 cannot be deserialized: "), "the name is there once"
    assert failed == "8 of orders/shardId-0: 1 attempt: ValueError: no price"
    assert last == "Replayed: 1. Failed again and kept: 2."
    assert (folder / "sold").read_text().splitlines()[0] == "5"
    assert [row.split()[1] for row in results["left"].stdout.splitlines()[1:]] == ["8", "9"]


def test_one_letter_alone_is_replayed_or_dropped(results):
    assert results["replay one"].stdout.splitlines()[-1] == "Replayed: 0. Failed again and kept: 1."
    assert (results["replay another"].returncode, results["replay another"].stdout) == (1, "")
    assert "no dead letter with the number 7" in results["replay another"].stderr
    assert (results["drop"].returncode, results["drop"].stdout) == (1, "")
    assert "no dead letter with the number 123, 124; 1 of the others has succeeded" in results["drop"].stderr
    assert [row.split()[1] for row in results["left after drop"].stdout.splitlines()[1:]] == ["9"]


def test_mended_payloads_are_replayed_to_the_job_alone(results, folder):
    assert results["replay bad payloads"].returncode == 2
    assert "line 2: Object missing required field" in results["replay bad payloads"].stderr
    done = results["replay payloads"]
    assert (done.returncode, done.stdout) == (0, "Replayed: 1. Failed again and kept: 0.\n")
    assert (folder / "sold").read_text().splitlines() == ["5", "70"]
    assert [row.split()[1] for row in results["left after payloads"].stdout.splitlines()[1:]] == ["7"]


def test_payloads_for_letters_of_a_queue_are_refused(results):
    done = results["replay payloads of a queue"]
    assert (done.returncode, done.stdout) == (2, "")
    assert "option '--payloads'" in done.stderr
    assert (
        "option '--payloads' needs --to job or --to stream: a queue takes its dead letters back unchanged"
        in done.stderr
    )


def test_all_letters_are_dropped_once_that_is_confirmed(results):
    done = results["drop all"]
    assert (done.returncode, done.stdout) == (2, "")
    assert "option '--all' needs --yes: it removes every dead letter of the job" in done.stderr
    assert results["left without yes"].stdout == results["left after drop"].stdout
    assert (results["drop all --yes"].returncode, results["drop all --yes"].stdout) == (0, "Dropped: 1.\n")
    assert len(results["left after all"].stdout.splitlines()) == 1
    assert results["drop unread"].stdout == "Dropped: 0. Not readable, and kept: 1.\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("drop nothing", "'SEQUENCE' is required. Valid: sequence numbers, or --all"),
        ("drop both", "option '--all' cannot be combined with 'SEQUENCE'"),
    ],
)
def test_either_numbers_or_all_letters_are_dropped(results, command, said):
    assert results[command].returncode == 2
    assert said in results[command].stderr


def test_a_letter_that_cannot_be_read_is_named_and_kept_and_the_replay_exits_with_1(results, folder):
    done = results["replay unread"]
    assert (done.returncode, done.stdout) == (1, "Replayed: 0. Failed again and kept: 0. Not readable: 1.\n")
    assert f"line 1 of {folder}/unread/1.jsonl cannot be read" in done.stderr
    assert (folder / "unread/1.jsonl").read_text() == "[]\n"


def test_a_program_has_its_letters_replayed_by_its_own_map_sink(results, folder):
    done = results["replay program"]
    assert done.returncode == 1
    failed, last = done.stdout.splitlines()
    assert failed == "8 of orders/shardId-0: 1 attempt: TimeoutError: no result within 0.2 s"
    assert last == "Replayed: 1. Failed again and kept: 1."
    assert (folder / "sold_by_program").read_text() == "5"


def test_a_program_without_a_handler_is_told_the_options_that_name_one(results):
    done = results["replay other program"]
    assert done.returncode == 2
    assert "would be lost at the end of this command" in done.stderr
    assert "-p flink.sink=map -p flink.sink.map.function=MODULE:FUNCTION" in done.stderr


INTERRUPTED = """
import asyncio, os, signal
async def handle(record):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(3600)
"""


def test_an_interrupted_replay_does_not_say_that_it_is_done(tmp_path):
    (tmp_path / "shop_interrupted.py").write_text(INTERRUPTED)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/1.jsonl").write_text(line("7", '{"price": 5}') + "\n")
    given = {
        "aws.region": "eu-west-1",
        "flink.streams": "orders",
        "flink.deserializer.error": "DEAD_LETTER",
        "flink.deadletter.sink": "jsonl",
        "flink.deadletter.jsonl.path": tmp_path / "letters",
        "flink.sink": "map",
        "flink.sink.map.function": "shop_interrupted:handle",
    }
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in given.items()))

    done = command("dead-letters", "replay", "job.properties", folder=tmp_path)

    assert (done.returncode, done.stdout) == (143, "")
    assert [file.name for file in tmp_path.glob("letters/*")] == ["1.jsonl"]
