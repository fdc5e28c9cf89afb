"""What `doctor` says where a job's sink cannot take the values of its deserializer: what the job itself would say at its start."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine, inspect, text

import recordpublisher as rp
from recordpublisher.cli.doctor.examination import settings_findings
from recordpublisher.cli.doctor.job import JobChecks
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.plugin_loading import load_registry

SHOP = """
from dataclasses import dataclass

@dataclass
class Order:
    country: str
    price: float = 0.0

@dataclass
class Order2(Order):
    amount: int = 0

@dataclass
class Named:
    stream: str

def handle(order: Order): ...
"""
TYPED = {"flink.deserializer": "shop_of_values:Order", "flink.job.name": "orders"}


@pytest.fixture(autouse=True)
def _shop(monkeypatch, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/shop_of_values.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path / "code")


async def found(**properties):
    """The verdict and words of each check of the sink by its name."""
    async with AsyncExitStack() as made:
        checks = JobChecks(load_registry(), rp.Properties({**TYPED, **properties}), made)
        findings = await checks.sink_findings()
    return {each.name: (each.verdict.value, each.words) for each in findings}


async def refusal(sink, properties):
    """What the sink says when a job opens it."""
    given = rp.Properties({**TYPED, **properties})
    made = sink(given)
    try:
        with pytest.raises(rp.ConfigurationError) as raised:
            await made.open(rp.SinkContext(value_type=build_deserializer(load_registry(), given).into))
    finally:
        await made.close()
    return str(raised.value)


def sql(tmp_path, *statements, **more):
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()
    return {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/shop.db", **more}


async def test_a_table_without_a_column_that_is_needed_is_a_problem_in_the_words_of_the_job(tmp_path):
    table = {"flink.sink.sql.table": "records", "flink.sink.sql.columns": "AUTO"}
    job = sql(tmp_path, "CREATE TABLE records (country TEXT)", **table)
    verdict, words = (await found(**job))["sink: values"]

    assert (verdict, words) == ("PROBLEM", await refusal(rp.SqlSink, job))
    assert "ADD COLUMN price" in words


async def test_a_field_with_the_name_of_a_records_column_is_a_problem_before_there_is_a_table(tmp_path):
    job = sql(tmp_path, **{"flink.deserializer": "shop_of_values:Named", "flink.sink.sql.columns": "AUTO"})
    verdict, words = (await found(**job))["sink: values"]

    assert (verdict, words) == ("PROBLEM", await refusal(rp.SqlSink, job))
    assert "field 'stream'" in words


async def test_what_would_be_added_or_left_out_is_said_and_nothing_is_changed(tmp_path):
    table = {"flink.sink.sql.table": "records"}
    job = sql(tmp_path, "CREATE TABLE records (country TEXT)", **table)

    assert (await found(**job))["sink: values"] == ("ok", "records does not store fields without a column: price")
    evolving = await found(**job, **{"flink.sink.sql.columns": "EVOLVE"})
    assert evolving["sink: values"] == ("ok", "records is there")
    engine = create_engine(job["flink.sink.sql.uri"])
    assert [column["name"] for column in inspect(engine).get_columns("records")] == ["country"]
    assert inspect(engine).get_table_names() == ["records"]
    engine.dispose()


async def test_a_table_with_a_column_for_nothing_of_a_record_is_a_problem(tmp_path):
    job = sql(tmp_path, "CREATE TABLE records (total REAL)", **{"flink.sink.sql.table": "records"})

    verdict, words = (await found(**job))["sink: values"]
    assert verdict == "PROBLEM"
    assert "no column of the table matches a value" in words


def delta(tmp_path):
    return {"flink.sink": "delta", "flink.sink.delta.uri": str(tmp_path / "table")}


def iceberg(tmp_path):
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    return {
        "flink.sink": "iceberg",
        "flink.sink.iceberg.table": "shop.orders",
        "flink.sink.iceberg.catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "flink.sink.iceberg.catalog.warehouse": f"file://{tmp_path}/warehouse",
        "flink.state.uri": str(tmp_path / "state"),
    }


@pytest.mark.parametrize(("sink", "job"), [(rp.DeltaSink, delta), (rp.IcebergSink, iceberg)], ids=["delta", "iceberg"])
async def test_a_lakes_table_that_lacks_a_column_is_a_problem_in_the_words_of_the_job(sink, job, tmp_path):
    given = job(tmp_path)
    assert (await found(**given))["sink: values"][0] == "ok", "there is no table yet"
    first = sink(rp.Properties({**TYPED, **given}))
    await first.open(rp.SinkContext(value_type=build_deserializer(load_registry(), rp.Properties(TYPED)).into))
    await first.close()
    assert (await found(**given))["sink: values"][0] == "ok"

    wider = given | {"flink.deserializer": "shop_of_values:Order2"}
    verdict, words = (await found(**wider))["sink: values"]
    assert verdict == "PROBLEM"
    assert "has no column 'amount'" in words
    assert words == await refusal(sink, wider)
    assert (await found(**wider, **{"flink.sink.table.columns": "EVOLVE"}))["sink: values"][0] == "ok"
    assert (await found(**wider))["sink: values"][0] == "PROBLEM", "nothing was added"


@pytest.mark.parametrize("job", [delta, iceberg, None], ids=["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("pattern", ["region={region}", "day={ordered:%Y-%m-%d}"])
async def test_a_partition_by_a_field_that_the_type_does_not_have_is_a_problem(job, pattern, tmp_path):
    given = (
        {"flink.sink": "parquet", "flink.sink.parquet.path": str(tmp_path / "rows")} if job is None else job(tmp_path)
    )
    verdict, words = (await found(**given, **{"flink.sink.partitions": pattern}))["sink: values"]

    assert verdict == "PROBLEM"
    assert "is not a column" in words


async def test_a_handler_of_other_values_is_a_problem():
    handler = {"flink.sink": "map", "flink.sink.map.function": "shop_of_values:handle"}

    assert (await found(**handler))["sink: values"][0] == "ok"
    verdict, words = (await found(**handler, **{"flink.deserializer": "shop_of_values:Named"}))["sink: values"]
    assert verdict == "PROBLEM"
    assert "the deserializer makes Named" in words


async def test_a_type_without_the_field_of_event_times_is_told_since_its_json_may_have_it(tmp_path):
    given = {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")}
    key = "flink.watermark.timestamp.field"

    assert key not in await found(**given, **{key: "price"})
    verdict, words = (await found(**given, **{key: "ordered"}))[key]
    assert verdict == "not checked"
    assert words.startswith("Order has no field 'ordered'")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"flink.deserializer": "avro"}, "flink.deserializer.avro.schema"),
        ({"flink.stream.initpos": "AT_TIMESTAMP"}, "flink.stream.initpos.timestamp"),
        ({"flink.stream.initpos": "2999-01-01T00:00:00Z"}, "a time that has passed"),
        ({"flink.stream.initpos": "erliest"}, "an age such as 1h"),
    ],
)
async def test_what_a_job_refuses_when_it_is_made_is_a_problem(wrong, words):
    findings = await settings_findings(load_registry(), rp.Properties({"flink.sink": "memory", **wrong}), ["orders"])

    assert words in " ".join(each.words for each in findings if each.verdict.value == "PROBLEM")


async def test_doctor_says_what_a_handler_gets(tmp_path, monkeypatch):
    (tmp_path / "annotated_shop.py").write_text("def plain(order): ...\ndef typed(order: dict): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = {"flink.deserializer": "json", "flink.sink": "map", "flink.sink.map.function": "annotated_shop:plain"}

    assert (await found(**given))["sink: values"] == ("ok", "plain gets a Record")
    given["flink.sink.map.function"] = "annotated_shop:typed"
    assert (await found(**given))["sink: values"] == ("ok", "typed gets dict")


async def test_valid_properties_of_a_sink_that_is_not_chosen_are_said_to_have_no_effect():
    given = rp.Properties({"flink.sink": "memory", "flink.sink.sql.table": "rows"})

    findings = await settings_findings(load_registry(), given, ["orders"])

    assert (findings[0].name, findings[0].verdict.value, findings[0].words) == (
        "properties",
        "ok",
        "valid; flink.sink.sql.table has no effect: the sink is memory; only sql reads it",
    )


@dataclass
class Click:
    page: str


@dataclass
class Visit:
    page: str


async def test_values_of_several_classes_are_no_error_of_doctor(tmp_path, monkeypatch):
    class OfBoth:
        makes = Click | Visit

    monkeypatch.setattr("recordpublisher.cli.doctor.job.chosen_deserializer", lambda *given: OfBoth())
    given = {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")}

    assert "sink" in await found(**given, **{"flink.watermark.timestamp.field": "at"})
