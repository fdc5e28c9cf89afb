"""The page of the dashboard in a real browser, Chromium. With DASHBOARD_IMAGE=docs/images/dashboard.png it writes that image."""

import asyncio
import os
from pathlib import Path

import pytest

from recordpublisher.plugins.dashboard.server import DashboardServer, History
from recordpublisher.plugins.lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot, WorkerSnapshot
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import StateError

from .chromium import opened
from .page_sources import ALIGNMENT, NOW_MS, BusySource, Source, job, resharded_job, shard

pytestmark = pytest.mark.servers


@pytest.fixture
async def source():
    return Source(job(24))


@pytest.fixture
async def url(source):
    server = DashboardServer(source)
    yield await server.open(0)
    await server.close()


READ = "document.querySelectorAll('#rows tr:not(.space)').length > 0"
CELLS = (
    "[...document.querySelectorAll('#rows tr:not(.space)')].map(row => [...row.cells].map(cell => cell.textContent))"
)


async def test_the_worst_lag_is_first_and_the_sentence_says_what_alignment_waits_for(url, tmp_path):
    async with opened(tmp_path, url, height=1000) as tab:
        await tab.wait(READ)
        cells = await tab.value(CELLS)

        assert len(cells) == 24
        assert cells[0] == [
            "shardId-000000000007", "1", "5.2 min", "31.5", "103 kB", "0 s", "no", "no", "3.0 h", "yes"
        ]  # fmt: skip
        assert await tab.value("document.getElementById('alignment').textContent") == ALIGNMENT
        assert await tab.value("document.querySelectorAll('#workers li').length") == 3


def keep_image(image, scheme):
    """The README has the light one; the dark one is written beside it, to be looked at."""
    if path := os.environ.get("DASHBOARD_IMAGE"):
        (Path(path) if scheme == "light" else Path(path).with_suffix(".dark.png")).write_bytes(image)


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_the_charts_have_a_point_for_each_reading(scheme, tmp_path):
    server = DashboardServer(BusySource(resharded_job()))
    try:
        async with opened(tmp_path, await server.open(0), height=1000, scheme=scheme) as tab:
            await tab.wait(READ)
            for count in range(2, 52):
                await tab.value("read()")
                assert await tab.value("history.length") >= count
            for chart in ("rate", "lag"):
                path = await tab.value(f"element('{chart}-chart').firstElementChild.getAttribute('d')")
                assert path.count("L") >= 45
            keep_image(await tab.screenshot(), scheme)
    finally:
        await server.close()


async def test_what_is_not_known_is_shown_as_unknown(url, source, tmp_path):
    source.given = JobSnapshot(time_ms=NOW_MS, shards=[ShardSnapshot(stream="orders", shard="shardId-0")])
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)

        assert await tab.value(CELLS) == [["shardId-0", *"---------"]]
        totals = await tab.value("[...document.querySelectorAll('dd')].map(each => each.textContent)")
        assert totals == ["1", *"--------"]
        assert await tab.value("document.getElementById('alignment').textContent") == "What alignment waits for: -"
        assert await tab.value("document.getElementById('workers').textContent") == "-"


async def test_the_name_of_the_job_is_headline_and_title_and_the_totals_have_what_was_left_out(url, source, tmp_path):
    workers = [
        WorkerSnapshot(0, counts={"skipped": 2, "dead letters": 1}),
        WorkerSnapshot(1, counts={"skipped": 3, "too old": 1_200}),
        WorkerSnapshot(2),
    ]
    source.given = job(24, job="orders-to-lake", shards=[shard(0, counts={"skipped": 1})], workers=workers)
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        assert await tab.value("[element('job').textContent, element('streams').textContent, document.title]") == [
            "orders-to-lake", "orders", "orders-to-lake - recordpublisher"
        ]  # fmt: skip
        totals = await tab.value(
            "Object.fromEntries([...document.querySelectorAll('#totals div')].map(each => [...each.children].map(x => x.textContent)))"
        )
        assert (totals["Skipped"], totals["Dead letters"], totals["Alarms"]) == ("5", "1", "0")
        assert totals["Too old"] == "1,200", "each title that a worker gives is shown"
        assert "retention" in await tab.value("document.querySelector('#totals [title]').title")


TREE = "[...document.querySelectorAll('#tree li')].map(item => item.innerText.split('\\n')[0])"


async def test_splits_and_merges_are_a_tree(url, source, tmp_path):
    parents = {2: [0], 3: [0], 4: [3, 1], 5: [4], 6: [4]}
    names = [f"shardId-{number:012}" for number in range(8)]
    shards = [shard(number, parents=[names[each] for each in parents.get(number, [])]) for number in range(1, 8)]
    source.given = job(24, shards=shards)
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)

        assert await tab.value(TREE) == [
            f"{names[0]} no longer read",
            f"{names[2]} reading",
            f"{names[3]} reading",
            f"{names[4]} reading, from a merge with {names[1]}",
            f"{names[5]} reading",
            f"{names[6]} reading",
            f"{names[1]} reading, merged into {names[4]}",
        ]
        depth = "[...document.querySelectorAll('#tree li')].map(item => document.evaluate('count(ancestor::li)', item).numberValue)"
        assert await tab.value(depth) == [0, 1, 1, 2, 3, 3, 0]

        source.given = job(24, shards=[shard(number, parents=[]) for number in range(3)])
        await tab.wait("element('tree').textContent === 'No shard was split or merged.'")


async def test_workers_of_a_group_are_counted_like_workers(url, source, tmp_path):
    shards = [shard(0, process=None, worker="w-2"), shard(1, process=None, worker="w-1"), shard(2, process=None)]
    source.given = job(24, shards=shards, workers=None)
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        workers = await tab.value("[...document.querySelectorAll('#workers li')].map(item => item.textContent)")
        assert workers == ["w-1: 1 shard, checkpoint -, health -", "w-2: 1 shard, checkpoint -, health -"]
        assert sorted(row[1] for row in await tab.value(CELLS)) == ["-", "w-1", "w-2"]


async def test_each_reader_has_the_age_of_its_checkpoint(url, source, tmp_path):
    waiting = WorkerSnapshot(1, True, ["no shard could be read for 60 s"], 125_000)
    worker = WorkerSnapshot(2, True, [], 900, worker="0f3a")
    shards = [shard(0), shard(1), shard(2, worker="0f3a"), shard(5, worker="0f3a")]
    source.given = job(24, shards=shards, workers=[WorkerSnapshot(0, checkpoint_age_ms=2_400), waiting, worker])
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        assert await tab.value("[...document.querySelectorAll('#workers li')].map(item => item.textContent)") == [
            "0: 1 shard, checkpoint 2.4 s ago, health -",
            "1: 1 shard, checkpoint 2.1 min ago, not ready: no shard could be read for 60 s",
            "0f3a: 2 shards, checkpoint 900 ms ago, ready",
        ]


async def test_each_reader_has_its_last_commit_and_what_waits_for_the_next(url, source, tmp_path):
    commits = [CommitSnapshot(3, 1_234_567, 42_000, 1_001), CommitSnapshot(0, 0, None, 1), CommitSnapshot(0, 0, 900, 0)]
    readers = [WorkerSnapshot(number, True, [], commit=each) for number, each in enumerate(commits)]
    source.given = job(24, shards=[shard(0), shard(1), shard(2)], workers=readers)
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        assert await tab.value("[...document.querySelectorAll('#workers li')].map(item => item.textContent)") == [
            "0: 1 shard, checkpoint -, last commit 42.0 s ago (3 files, 1.23 MB), 1,001 records wait, ready",
            "1: 1 shard, checkpoint -, last commit -, 1 records wait, ready",
            "2: 1 shard, checkpoint -, last commit 900 ms ago, 0 records wait, ready",
        ]


async def test_the_charts_begin_with_what_was_before_the_page_was_opened(source, tmp_path):
    history = History(source, SystemClock(), 0.001)
    server = DashboardServer(source, history)
    url = await server.open(0)
    try:
        while len(history.points) < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with opened(tmp_path, url) as tab:
            await tab.wait(READ)
            assert await tab.value("history.length") >= 100
            path = await tab.value("element('rate-chart').firstElementChild.getAttribute('d')")
            assert path.count("L") >= 99
            assert (await tab.value("document.querySelector('.span').textContent")).endswith("now")
    finally:
        await server.close()


async def test_the_keyboard_filters_and_sorts(url, tmp_path):
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        await tab.press("/", 191, "/")
        await tab.call("Input.insertText", text="held")
        assert await tab.value("document.getElementById('count').textContent") == "6 of 24"

        await tab.press("Tab", 9)  # the table, which scrolls by keys
        await tab.press("Tab", 9)  # the first column
        await tab.press("Enter", 13, "\r")
        assert await tab.value("document.activeElement.parentElement.ariaSort") == "ascending"
        assert [row[0][-2:] for row in await tab.value(CELLS)] == ["15", "16", "17", "18", "19", "20"]
        await tab.press("Enter", 13, "\r")
        assert [row[0][-2:] for row in await tab.value(CELLS)] == ["20", "19", "18", "17", "16", "15"]


async def test_of_a_thousand_shards_only_the_visible_rows_are_drawn(url, source, tmp_path):
    source.given = job(1_000)
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        assert await tab.value("document.querySelector('table').ariaRowCount") == "1001"
        assert await tab.value("document.querySelectorAll('#rows tr').length") < 80

        await tab.value("sortBy = 'shard', descending = false, chooseShards()")
        await tab.value("element('scroll').scrollTop = element('scroll').scrollHeight")
        await tab.wait("element('rows').textContent.includes('shardId-000000000999')")
        assert await tab.value("document.querySelectorAll('#rows tr').length") < 80


async def test_a_dark_scheme_is_followed(url, tmp_path):
    async with opened(tmp_path, url, scheme="dark") as tab:
        await tab.wait(READ)
        assert await tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 23)"


async def test_while_the_job_cannot_be_read_the_old_values_stay_and_are_called_old(url, source, tmp_path):
    async with opened(tmp_path, url) as tab:
        await tab.wait(READ)
        source.error = StateError("the store <b>cannot</b> be reached")
        await tab.wait("!element('error').hidden && element('age').className === 'old'")
        text = await tab.value("element('error').textContent")
        assert text.startswith("Unknown since ")
        assert text.endswith(" UTC: the store <b>cannot</b> be reached. The values below are old.")
        assert await tab.value(READ)

        source.error = None
        await tab.wait("element('error').hidden && element('age').className === ''")
