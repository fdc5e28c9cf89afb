"""S10: streams given as names, as a file or as a function; a list that cannot be used leaves the last good one."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.plugins.runtime.stream_names import (
    StreamNames,
    StreamsFile,
    stream_names,
    streams_argument,
    streams_of,
)
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/"
ORDERS = f"{ARN}orders"


def test_names_of_arns():
    assert stream_names([ORDERS, " clicks "]) == {"orders": ORDERS, "clicks": "clicks"}


@pytest.mark.parametrize("wrong", [None, [], "", [" "], 7, [None], ["a", "a"], [ORDERS, "orders"], {}])
def test_a_value_that_names_no_stream_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="streams"):
        stream_names(wrong)


def looks(streams, *changes, check=lambda streams: None):
    """The list after each change, and the names that it knows."""
    names = StreamNames(streams)

    async def job():
        seen, looked = [], asyncio.Semaphore(0)
        listed = names.stream_list(check, Properties({"flink.shard.discovery.intervalmillis": 1}))

        async def on_look():
            looked.release()

        running = asyncio.create_task(listed.run(on_look))
        for change in changes:
            change()
            while not looked.locked():
                await looked.acquire()
            for _ in range(2):  # the first look may have begun before the change
                await looked.acquire()
            seen.append(tuple(listed))
        running.cancel()
        return seen

    return asyncio.run(job()), names


def function_of(given):
    return lambda: given[0]


@pytest.mark.parametrize("read", [rp.read_arrow, rp.read_polars, rp.consume, rp.stream, rp.DataFetcher])
def test_properties_in_place_of_the_streams_name_are_told_so(read, monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="argument is the stream's name; properties are the second") as told:
        read({"stream": "sales", "aws.credentials.provider.basic.secretkey": "hidden-key"})
    assert "hidden-key" not in str(told.value)


@pytest.mark.parametrize("given", ["orders # my stream", '"orders"', "'orders'", "a b"])
def test_what_is_no_name_is_refused_before_any_call(given):
    with pytest.raises(ConfigurationError, match="a comment needs a line of its own"):
        StreamNames(["first", given])


def test_names_stay_as_they_are():
    names = StreamNames(["orders", f"eu={ARN}orders"])
    assert names.given == {"orders": "orders", "eu": f"eu={ARN}orders"}
    assert names.stream_list(None, Properties()).is_fixed


def test_a_function_is_called_once_without_discovery():
    names = StreamNames(function_of([["orders"]]))

    assert names.stream_list(None, Properties({"flink.shard.discovery.intervalmillis": -1})).is_fixed
    assert not names.stream_list(None, Properties()).is_fixed


def test_a_function_is_called_again():
    given = [["a"]]
    found, names = looks(
        function_of(given),
        lambda: given.__setitem__(0, ["a", ARN + "b"]),
        lambda: given.__setitem__(0, "c"),
    )
    assert found == [("a", "b"), ("c",)]
    assert names.given == {"a": "a", "b": ARN + "b", "c": "c"}


def test_an_async_function_is_awaited():
    given = ["a"]

    async def streams():
        await asyncio.sleep(0)
        return list(given)

    found, _ = looks(streams, lambda: given.append("b"))
    assert found == [("a", "b")]


async def test_an_async_function_is_awaited_where_a_loop_runs_already():
    async def streams():
        return ["a"]

    assert StreamNames(streams).given == {"a": "a"}


@pytest.mark.parametrize("wrong", [[], [""], ["a", "a"], None, 5, [5], ["a", f"a={ARN}b"]])
def test_a_list_that_cannot_be_used_leaves_the_last_good_one_and_is_warned_of_once(wrong, caplog):
    given = [["a"]]
    caplog.set_level("INFO")
    found, _ = looks(
        function_of(given),
        lambda: given.__setitem__(0, wrong),
        lambda: None,
        lambda: given.__setitem__(0, ["b"]),
    )
    assert found == [("a",), ("a",), ("b",)]
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


def test_a_function_that_raises_leaves_the_last_good_list(caplog):
    given = ["a"]

    def streams():
        return [given[0]]

    found, _ = looks(streams, given.clear)
    assert found == [("a",)]
    assert "IndexError: list index out of range. The job continues with a" in caplog.text


def test_streams_that_the_publisher_refuses_leave_the_last_good_list(caplog):
    def check(streams):
        raise ConfigurationError("flink.stream.efo.consumerarn.b", None, "the ARN of a consumer")

    given = [["a"]]
    found, _ = looks(function_of(given), lambda: given.__setitem__(0, ["a", "b"]), check=check)
    assert found == [("a",)]
    assert "flink.stream.efo.consumerarn.b" in caplog.text


def test_a_name_may_not_come_to_stand_for_another_stream(caplog):
    given = [[f"eu={ARN}a"]]
    found, _ = looks(function_of(given), lambda: given.__setitem__(0, [f"eu={ARN}b"]))
    assert found == [("eu",)]
    assert f"eu={ARN}a, as before" in caplog.text


def test_a_function_that_fails_at_the_start_is_an_error_that_names_it():
    def broken():
        raise OSError("no route")

    with pytest.raises(ConfigurationError, match=r"broken.*no route"):
        StreamNames(broken)


def test_a_file_has_one_stream_on_each_line(tmp_path):
    file = tmp_path / "streams.txt"
    file.write_text(f"\ufeff# of the team\norders\n\n  {ARN}clicks  \neu={ARN}orders\n", encoding="utf-8")
    assert StreamsFile(str(file))() == ["orders", ARN + "clicks", f"eu={ARN}orders"]


@pytest.mark.parametrize("content", ["", "# nothing\n\n", "orders, returns\n", "<html>\n", "orders\n{\n"])
def test_a_file_that_names_no_streams_is_an_error_that_names_it(tmp_path, content):
    file = tmp_path / "streams.txt"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"flink\.streams\.file.*streams\.txt"):
        StreamNames(StreamsFile(str(file)))


def test_a_file_that_is_missing_for_a_moment_leaves_the_last_good_list(tmp_path, caplog):
    file = tmp_path / "streams.txt"
    file.write_text("a\nb\n")
    found, _ = looks(StreamsFile(str(file)), file.unlink, lambda: file.write_text("b\n"))
    assert found == [("a", "b"), ("b",)]
    assert "The job continues with a, b" in caplog.text


def test_properties_give_names_a_file_or_a_function(tmp_path, monkeypatch):
    file = tmp_path / "streams.txt"
    file.write_text("a\n")
    (tmp_path / "streams_of_the_team.py").write_text("def of_today():\n    return ['b']\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert streams_of(Properties({"flink.streams": "c, d"})) == ["c", "d"]
    assert streams_of(Properties({"flink.streams.file": str(file)})) == ["a"]
    assert streams_of(Properties({"flink.streams.function": "streams_of_the_team:of_today"})) == ["b"]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"flink.stream": "orders"}, r"flink\.streams.*is required.*'flink\.stream' is set, which is not a property"),
        ({}, r"flink\.streams.*is required.*flink\.streams\.file.*flink\.streams\.function"),
        (
            {"flink.streams": "a", "flink.streams.file": "b"},
            r"flink\.streams\.file.*cannot be combined with 'flink\.streams'",
        ),
        ({"flink.streams.function": "nowhere:f"}, r"flink\.streams\.function.*nowhere:f.*module:function"),
    ],
)
def test_properties_that_give_no_streams_are_an_error(properties, message):
    with pytest.raises(ConfigurationError, match=message):
        streams_argument(Properties(properties))


def test_jobs_with_the_same_function_or_file_are_one_job_also_when_their_lists_differ():
    given = [["a"]]
    streams = function_of(given)
    first = StreamNames(streams).identity
    given[0] = ["b"]
    assert StreamNames(streams).identity == first
    assert StreamNames(["a"]).identity == ("a",)
