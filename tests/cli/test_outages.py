"""How long commands try again while the service is away: someone waits for them, so they give up soon."""

import json
import re
import signal

import pytest

from processes.command_line import process_environment
from processes.forked.command import PipedCommand

AWAY = ("--endpoint", "http://127.0.0.1:9", "--region", "us-east-1", "-p", "aws.http.client=SDK")
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
COMMANDS = (
    "lag flights",
    "lag JOB",
    "lag JOB --watch",
    "dashboard JOB",
    "describe flights",
    "list",
    "consumers list flights",
    "tail flights --no-follow",
    "dead-letters replay JOB --to stream",
)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "letters").mkdir()
    (folder / "state").mkdir()
    value = {"error": "no price", "payload": "x"}
    numbers = {"sequenceNumber": "7", "subSequenceNumber": -1, "partitionKey": "k", "eventTime": 0}
    arrival = "2026-11-26T06:00:00.000+00:00"
    letter = {
        "stream": "flights",
        "shardId": "shardId-0",
        **numbers,
        "approximateArrivalTimestamp": arrival,
        "value": value,
    }
    (folder / "letters" / "1.jsonl").write_text(json.dumps(letter) + "\n")
    lines = ["flink.streams=flights", "flink.sink=memory", f"flink.state.uri={folder / 'state'}"]
    lines += ["flink.deadletter.sink=jsonl", f"flink.deadletter.jsonl.path={folder / 'letters'}"]
    (folder / "job.properties").write_text("\n".join(lines))
    return folder / "job.properties"


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_waits_half_a_minute_for_the_service(job, words):
    given = [str(job) if word == "JOB" else word for word in words.split()]
    with PipedCommand(*given, *AWAY, environment=process_environment(**KEYS)) as process:
        told = ""
        while "trying again" not in told and (line := process.stderr.readline()):
            told += line
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)

    found = re.search(r"trying again, with pauses of up to (\d+) s in all", told)
    assert found is not None, told
    assert 20 < int(found[1]) <= 30, told
