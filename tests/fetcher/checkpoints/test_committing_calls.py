"""Mistakes of a committing sink end the job with the class and the method, before a position is stored for rows that are not there."""

import asyncio
import re

import pytest

from recordpublisher.fetcher.checkpoints.committing_calls import CommittingCalls
from recordpublisher.fetcher.checkpoints.staged_commits import Commits
from recordpublisher.fetcher.sink import CommitNumber, Staged, entry_store_of
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.safe_text import notes_of
from recordpublisher.publishers.user_code import notice_unawaited_calls
from recordpublisher.testing import run_virtual
from recordpublisher.testing.sink_contract import batch_of

from fakes.commits.committing_sink import Table, TableSink
from fakes.memory_store import MemoryStore

NUMBER = CommitNumber("job/life", 1)
ITEM = Staged(NUMBER, {"name": "a"})
GIVEN = {
    "begin": ("life",),
    "stage": (NUMBER,),
    "commit": (MemoryStore(), "name", b"{}", None, [ITEM]),
    "publish": ([ITEM],),
    "unpublished": ([ITEM],),
    "take_back": ([ITEM],),
    "writers": (),
    "discard": (lambda life: True, []),
    "forget_ended_lives": (lambda life: True,),
    "leftovers": ([],),
    "remove": ([],),
    "end_life": ("life",),
}


class OddBase(BaseException):
    pass


def sink_with(method, function):
    """A sink of this module whose method is a function, with the result of `type` as its class."""

    def of_sink(self, *given):
        return function(*given)

    async def of_async_sink(self, *given):
        return await function(*given)

    own = of_sink if method in ("target", "entries") else of_async_sink
    return CommittingCalls(type("Mine", (TableSink,), {method: own, "__module__": __name__})(Table()))


def answering(method, answer):
    async def function(*given):
        return answer

    return sink_with(method, function)


@pytest.mark.parametrize("method", GIVEN)
@pytest.mark.parametrize("kind", [KeyError, OddBase, asyncio.CancelledError])
async def test_an_error_names_the_class_and_the_method(method, kind):
    async def fail(*given):
        raise kind("odd")

    with pytest.raises((KeyError, PluginError)) as caught:
        await getattr(sink_with(method, fail), method)(*GIVEN[method])
    if issubclass(kind, Exception):
        assert notes_of(caught.value) == [f"the sink Mine failed in `{method}`"]
    else:
        assert str(caught.value).startswith(f"`Mine.{method}` raised ")


@pytest.mark.parametrize("method", GIVEN)
def test_a_call_that_hangs_is_logged_with_its_line(method, caplog):
    async def hang(*given):
        await asyncio.sleep(1e9)

    async def main():
        calling = asyncio.create_task(getattr(sink_with(method, hang), method)(*GIVEN[method]))
        await asyncio.sleep(11)
        calling.cancel()
        await asyncio.wait([calling])

    run_virtual(main())
    assert re.fullmatch(
        rf"`Mine.{method}` has not returned for 10 s: it waits at \S+test_committing_calls.py:\d+ \(hang\)",
        caplog.messages[0],
    )


@pytest.mark.parametrize("method", GIVEN)
@pytest.mark.filterwarnings("always:coroutine")
async def test_a_forgotten_await_ends_the_call(method):
    notice_unawaited_calls()

    async def work():
        pass

    async def returns(*given):
        return work()

    async def drops(*given):
        work()
        return await getattr(TableSink(Table()), method)(*given)

    for function in (returns, drops):
        with pytest.raises(PluginError, match=rf"`Mine.{method}` has not awaited a call, so its work was not done"):
            await getattr(sink_with(method, function), method)(*GIVEN[method])


@pytest.mark.parametrize(
    ("method", "answer", "words"),
    [
        ("stage", True, "returned True: return a Staged, or None if there are no rows"),
        (
            "stage",
            Staged(CommitNumber("job/life", 2), {}),
            "returned a Staged with the number CommitNumber(writer='job/life', n=2)",
        ),
        ("stage", Staged(NUMBER, [1]), "returned a Staged with the content [1]: the content must be a dict"),
        (
            "stage",
            Staged(NUMBER, {"a": [{1}]}),
            "returned a Staged with content that JSON cannot hold unchanged: content['a'][0] is {1}",
        ),
        (
            "stage",
            Staged(NUMBER, {1: "a"}),
            "returned a Staged with content that JSON cannot hold unchanged: the key 1 in content is not a str",
        ),
        (
            "stage",
            Staged(NUMBER, {"a": float("nan")}),
            "returned a Staged with content that JSON cannot hold unchanged: content['a'] is nan",
        ),
        ("commit", None, "returned None: return the new version of the value that it has written, as a str"),
        ("unpublished", None, "returned None: return a list of Staged, and [] for none"),
        ("take_back", ["a"], "returned ['a']: return a list of Staged, and [] for none"),
        ("writers", "job/life", "returned 'job/life': return a list of str, and [] for none"),
        ("forget_ended_lives", None, "returned None: return True or False"),
        ("leftovers", None, "returned None: return a list of Leftover, and [] for none"),
    ],
)
async def test_a_result_of_a_wrong_type_is_refused_with_what_to_return(method, answer, words):
    with pytest.raises(PluginError) as caught:
        await getattr(answering(method, answer), method)(*GIVEN[method])
    assert str(caught.value).startswith(f"`Mine.{method}` {words}")


@pytest.mark.parametrize("method", ["target", "entries"])
def test_a_name_and_a_store_of_a_wrong_type_are_refused(method):
    calls = sink_with(method, lambda: 5)
    with pytest.raises(PluginError, match=rf"`Mine.{method}` returned 5: return a "):
        calls.target() if method == "target" else entry_store_of(calls.sink)


def test_a_store_without_a_place_is_refused_with_what_to_set():
    class Placeless(MemoryStore):
        place = None

    store = Placeless()
    with pytest.raises(PluginError, match=r"`Placeless.__init__` has set no `self.place`: set it"):
        entry_store_of(TableSink(Table(), store))


@pytest.mark.filterwarnings("always:coroutine")
async def test_rows_whose_publish_was_not_awaited_stay_named_by_the_entry():
    notice_unawaited_calls()

    class Forgets(TableSink):
        async def publish(self, staged):
            super().publish(staged)

    table = Table()
    sink, store = Forgets(table), MemoryStore()
    commits = Commits(sink, store, "entry", "job/life")
    await sink.write(batch_of("a", 1))
    await commits.stage()
    await commits.commit(lambda number, staged: b"%d" % number, None)
    for _ in range(2):
        with pytest.raises(PluginError, match=r"`Forgets.publish` has not awaited a call"):
            await commits.publish()
    sink.publish = TableSink(table).publish
    await commits.publish()
    assert table.rows == [b"1"]
