"""What the pages point to is there: links, files, functions, properties, the example of a snapshot."""

import ast
import functools
import json
import re

import pytest

import recordpublisher as rp
from recordpublisher.cli import lag_view
from recordpublisher.cli.commands import lag
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots, snapshot_to_json
from recordpublisher.plugins.sinks import callback as memory  # noqa: F401 - declare properties
from recordpublisher.plugins.spark import writer as writing_options  # noqa: F401 - declares properties
from recordpublisher.plugins.spark.options import spark_options  # noqa: F401 - declares properties
from recordpublisher.publishers.properties.declaration import declared_properties

from processes.command_line import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGE = ROOT / "src" / "recordpublisher"
FOLDERS = tuple(sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()))
LATER = {"flink.watermark.alignment.max.lag"}
"""Named as not there yet."""
OF_JAVA = {"aws.cborEnabled"}
"""System properties of the AWS SDK for Java."""
EXAMPLES = ("flink.lines.", "flink.sink.orders.", "flink.sink.counting.")
"""Properties of the plugins of the tutorials."""


def ids(page):
    return str(page.relative_to(ROOT))


def code_of(page):
    return re.findall(r"`([^`\n]+)`", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_files_exist(page):
    for name in code_of(page):
        if re.fullmatch(r"(docs|tests|src)/[\w/.-]+", name):
            assert (ROOT / name).exists(), name
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w/.-]+", name):
            assert (PACKAGE / name).exists(), name


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page.parts], ids=ids)
def test_public_names_exist_with_what_the_page_calls_on_them(page):
    for path in re.findall(r"\brp((?:\.[A-Za-z_]\w*)+)", page.read_text()):
        found = rp
        for name in path.split(".")[1:]:
            fields = {field for each in getattr(found, "__mro__", ()) for field in getattr(each, "__annotations__", ())}
            if name in fields and not hasattr(found, name):
                break  # What the field of an instance has is not known from its class.
            assert hasattr(found, name), f"rp{path}"
            found = getattr(found, name)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_properties_are_declared(page):
    known = {key for declared in declared_properties() for key in (declared.key, *declared.aliases)}
    for key in re.findall(r"\b((?:flink|aws)\.[a-z][\w.]*\w)", page.read_text()):
        is_known = key in known or any(one.startswith(f"{key}.") or one.startswith(f"{key}[") for one in known)
        is_below = any(key.startswith(one) or f"{key}." == one for one in known if one.endswith("."))
        assert (
            is_known
            or is_below
            or key in LATER | OF_JAVA
            or key.startswith(EXAMPLES)
            or page.parent.name == "decisions"
        ), key


@functools.cache
def classes():
    """Where each class is, and the names of its functions."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                found.setdefault(node.name, []).append((file.relative_to(PACKAGE), names))
    return found


def test_the_functions_named_in_explanations_exist():
    known = classes()
    named = [name for page in (ROOT / "docs/explanation").glob("*.md") for name in code_of(page)]
    walked = [name.split(".") for name in named if re.fullmatch(r"[A-Z]\w+\.[a-z_]\w*", name)]
    assert len(walked) > 20
    for owner, function in walked:
        assert any(function in names for _, names in known.get(owner, [])), f"{owner}.{function}"


def test_owners_live_where_the_table_says():
    known = classes()
    rows = re.findall(r"\| `(\w+)`[^|`]*, `([\w/.]+)` \|", (ROOT / "docs/explanation/architecture.md").read_text())
    assert len(rows) > 12
    for owner, file in rows:
        assert file in [str(place) for place, _ in known[owner]], owner


def test_the_example_of_a_snapshot_is_one():
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/explanation/state.md").read_text(), re.DOTALL)
    snapshot = json.loads(example)

    restored = merge_snapshots([snapshot])

    assert snapshot_to_json(restored.shards, restored.pinned_ms, restored.generation, snapshot["takenMs"]) == snapshot


SETTINGS_OF_THE_KCL = (
    "applicationName executableName streamArn streamName AwsCredentialsProvider processingLanguage initialPositionInStream "
    "initialPositionInStreamExtended regionName failoverTimeMillis workerId shardSyncIntervalMillis maxRecords "
    "idleTimeBetweenReadsInMillis callProcessRecordsEvenForEmptyRecordList parentShardPollIntervalMillis "
    "cleanupLeasesUponShardCompletion taskBackoffTimeMillis "
    "validateSequenceNumberBeforeCheckpointing clientVersionConfig gracefulLeaseHandoffTimeoutMillis "
    "maxLeasesForWorker shutdownGraceMillis timeoutInSeconds retrievalMode metricsLevel"
)
"""Of the sample file of amazon-kclpy 3, without those that its page has by kind: metrics, threads, tables, balancing."""


@pytest.mark.parametrize("setting", SETTINGS_OF_THE_KCL.split())
def test_the_page_of_the_kcl_says_what_becomes_of_a_setting(setting):
    rows = [line for line in (ROOT / "docs/migrate/from-kcl.md").read_text().splitlines() if line.startswith("| ")]
    assert any(re.search(rf"`{setting}\b", row.split(" | ")[0]) for row in rows)


def test_each_column_of_lag_is_explained_on_the_page_about_it():
    page = (ROOT / "docs/operate/watch-a-job.md").read_text()
    explained = page[page.index("| LAG | ") : page.index("For cron or CI")]
    columns = {*lag.HEAD, *lag.TIP_HEAD, *lag_view.GROUP_HEAD, *lag_view.HEAD} - {"", "SHARD"}

    assert [column for column in sorted(columns) if column not in explained] == []
    assert "With `--live` the job itself says it" in explained
