"""Which checks `doctor` makes of a job, by its publisher."""

import asyncio
from contextlib import AsyncExitStack

import recordpublisher as rp
from recordpublisher.cli.doctor.examination import Examination, settings_findings
from recordpublisher.cli.doctor.streams import StreamUse
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameClaim, NameOwner
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import call_with_retries

JOB = {"flink.sink": "memory", "flink.stream.recordpublisher": "lines"}


class LinesFactory(rp.RecordPublisherFactory):
    """A publisher of another package, which reads no AWS service."""

    def __init__(self, properties):
        if properties.get("queue.broken"):
            raise KeyError("queue.address")

    async def create(self, shard, starting_position, metrics):
        raise AssertionError("doctor reads nothing of a plugin")

    async def discover(self, stream):
        return []


class ToldLinesFactory(LinesFactory):
    """The same with checks of its own."""

    async def endpoint_url(self):
        return "http://127.0.0.1:1"

    def checks(self, stream):
        async def ask():
            return f"{stream} is there"

        return {"queue": ask}


async def found(made, stream="orders", **properties):
    """The verdict and words of each check by its name."""
    registry = load_registry()
    registry.publishers.claim(NameClaim("lines", made, NameOwner("lines", "package")))
    async with AsyncExitStack() as opened:
        job = rp.Properties({**JOB, **properties})
        findings = await Examination(registry, job, {stream: StreamUse()}, opened, []).job_findings()
    return {each.name: (each.verdict.value, each.words) for each in findings}


async def test_a_constructor_that_raises_is_a_finding_and_ends_nothing():
    checked = await found(LinesFactory, **{"queue.broken": "yes"})

    words = "the publisher 'lines' of package could not be made: KeyError: 'queue.address'"
    verdict, found_words = checked["publisher"]
    assert verdict == "PROBLEM"
    assert found_words.startswith(f"{words} at ")
    assert found_words.endswith(" (LinesFactory.__init__)")
    assert checked["sink"][0] == "ok"
    assert not any(name.startswith("orders") for name in checked)


async def test_a_source_beside_aws_needs_no_region_and_no_rights():
    checked = await found(LinesFactory)

    assert "region" not in checked
    assert not any("kinesis" in name for name in checked)
    assert checked["orders: shards"] == ("ok", "lines lists 0 shards")
    assert checked["orders: records"][0] == "not checked"
    assert checked["connection"] == ("not checked", "lines does not say which endpoint it calls")


async def test_streams_of_dynamodb_need_a_region_however_their_publisher_is_spelled():
    given = {"flink.stream.recordpublisher": "dynamodb_streams", "aws.region": "eu-west-1"}
    checked = await found(LinesFactory, **{"aws.endpoint": "http://127.0.0.1:1", **given})

    assert "region" in checked


async def test_a_source_is_asked_by_its_own_checks_once_it_can_be_reached():
    checked = await found(ToldLinesFactory)

    verdict, words = checked["connection"]
    assert verdict == "PROBLEM"
    assert words.startswith("127.0.0.1:1 cannot be reached")
    assert "orders: queue" not in checked


class MisspeltLinesFactory(LinesFactory):
    """Has checks of its own, and no such stream."""

    async def discover(self, stream):
        raise rp.StreamNotFoundError(stream)

    def checks(self, stream):
        async def ask():
            return "the lines are sound"

        return {"integrity": ask}


async def test_checks_of_its_own_come_in_addition_to_that_of_its_listing():
    checked = await found(MisspeltLinesFactory)

    assert checked["orders: integrity"] == ("ok", "the lines are sound")
    assert checked["orders: shards"] == (
        "PROBLEM",
        "stream 'orders' does not exist; `MisspeltLinesFactory.discover` for orders failed",
    )


async def test_an_arn_of_something_else_is_a_finding():
    arn = "arn:aws:sqs:eu-west-1:123456789012:orders"
    checked = await found(LinesFactory, arn, **{"flink.stream.recordpublisher": "POLLING"})

    verdict, words = checked["streams"]
    assert verdict == "PROBLEM"
    assert "arn:aws:kinesis:REGION:ACCOUNT:stream/NAME" in words
    assert checked["sink"][0] == "ok"


async def test_a_type_of_a_module_is_a_deserializer_as_in_run(monkeypatch, tmp_path):
    (tmp_path / "shop_of_doctor.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Order:\n    price: float\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def plugins(deserializer):
        properties = rp.Properties({"flink.deserializer": deserializer})
        findings = await settings_findings(load_registry(), properties, ["orders"])
        return next((each.verdict.value, each.words) for each in findings if each.name == "plugins")

    assert (await plugins("shop_of_doctor:Order"))[0] == "ok"
    verdict, words = await plugins("shop_of_doctor:Odrer")
    assert verdict == "PROBLEM"
    assert "has no attribute 'Odrer'" in words


async def test_a_blocked_name_that_is_not_a_plugin_is_in_the_finding(monkeypatch):
    monkeypatch.setenv("RECORDPUBLISHER_BLOCK_PLUGINS", "globex-htp")

    findings = await settings_findings(load_registry(), rp.Properties(), ["orders"])

    (words,) = [each.words for each in findings if each.name == "plugins"]
    assert words.endswith("; RECORDPUBLISHER_BLOCK_PLUGINS names 'globex-htp', but no plugin of that name is installed")


class RetryingLinesFactory(LinesFactory):
    """Retries its calls for `flink.job.max.outage`, as the tutorial says, and its service is away."""

    def __init__(self, properties):
        super().__init__(properties)
        self.policy = outage_policy(properties)

    async def discover(self, stream):
        async def refused():
            raise rp.TransientError("GET /partitions", "ConnectError", "connection refused")

        return await call_with_retries(refused, self.policy)


async def test_the_check_of_a_plugin_that_retries_names_the_error_of_its_call():
    async with asyncio.timeout(10):
        verdict, words = (await found(RetryingLinesFactory))["orders: shards"]
    assert verdict == "PROBLEM"
    assert "connection refused" in words
