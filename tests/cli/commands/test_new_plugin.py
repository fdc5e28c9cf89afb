"""`recordpublisher new-plugin`: the package of each kind passes its own test."""

import ast
import importlib.util
import os
import re
import subprocess
import sys

import pytest

import recordpublisher as rp

from processes.command_line import ROOT, command, json_results, process_environment

KINDS = {
    "publisher": "my-lines",
    "queue": "my-queue",
    "sink": "my-file",
    "committing-sink": "my-files",
    "store": "my-database",
    "deserializer": "my-pairs",
}
JOB = """
import asyncio, sys
import recordpublisher as rp

async def main(folder):
    properties = {"flink.my-lines.folder": folder, "flink.sink.my-file.file": f"{folder}/written.txt"}
    names = {"publisher": "my-lines", "sink": "my-file", "deserializer": "my-pairs", "state_uri": f"my-database://{folder}/state.db"}
    async with rp.DataFetcher("orders", properties, start="TRIM_HORIZON", **names) as fetcher:
        print((await fetcher.run()).records)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with a package of each kind."""
    folder = tmp_path_factory.mktemp("packages")
    given = [["new-plugin", kind, name] for kind, name in KINDS.items()]
    assert [code for code, *_ in json_results("commands_in_one_process", given, folder)] == [0] * len(KINDS)
    return folder


@pytest.fixture(scope="module")
def site(packages, tmp_path_factory):
    """All of them, built and installed."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    line = [sys.executable, "-m", "pip", "install", *options, "--target", target]
    subprocess.run(
        [*line, *(packages / name for name in KINDS.values())], check=True, env={**os.environ, "PIP_NO_INPUT": "1"}
    )
    return target


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS)
def test_the_package_and_its_test_are_typed(packages, name):
    line = [sys.executable, "-m", "mypy", "--strict", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        line, capture_output=True, text=True, cwd=packages / name, timeout=600, check=False, env=environment
    )

    assert ended.stdout == "Success: no issues found in 4 source files\n", ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS)
def test_the_package_passes_its_contract(packages, site, name):
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        line,
        cwd=packages / name,
        env=process_environment(site),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_package_says_that_it_is_typed(packages):
    for name in KINDS.values():
        module = name.replace("-", "_")
        assert (packages / name / module / "py.typed").read_bytes() == b""
        assert (
            f'[tool.setuptools.package-data]\n{module} = ["py.typed"]\n'
            in (packages / name / "pyproject.toml").read_text()
        )


def test_each_setting_of_a_package_is_in_a_name_space_that_is_checked(packages):
    for name in KINDS.values():
        for file in (packages / name).rglob("*.py"):
            keys = re.findall(rf'"([\w.]*{name}\.[\w.]+)"', file.read_text())
            assert all(key.startswith("flink.") for key in keys), (file, keys)


def test_the_settings_of_a_package_are_listed_under_its_name(packages):
    declared = {}
    for name in KINDS.values():
        for file in (packages / name).rglob("*.py"):
            calls = (each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call))
            for call in calls:
                if getattr(call.func, "id", "") in ("text", "choice", "integer", "number", "boolean"):
                    declared[ast.literal_eval(call.args[0])] = {each.arg: each.value for each in call.keywords}, name

    assert len(declared) > len(KINDS)
    groups = {key: ast.literal_eval(given["group"]) for key, (given, _) in declared.items() if "group" in given}
    assert groups == {key: name for key, (_, name) in declared.items()}


def test_a_uri_of_the_store_without_a_file_is_refused(packages):
    spec = importlib.util.spec_from_file_location("my_store", packages / "my-database/my_database/store.py")
    store = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(store)

    with pytest.raises(rp.ConfigurationError) as raised:
        store.MyDatabaseStore("my-database://", "flink.state.uri", rp.Properties())

    assert str(raised.value) == (
        "property 'flink.state.uri' is 'my-database://': it names no file. Valid: my-database:///path/state.db"
    )


def test_a_name_of_one_word_gets_the_kind(tmp_path):
    kinds = ("publisher", "committing-sink")
    given = [["new-plugin", kind, "globex"] for kind in kinds]

    results = json_results("commands_in_one_process", given, tmp_path)

    for (code, written, _), kind in zip(results, kinds, strict=True):
        assert code == 0
        assert f"next: cd globex-{kind} && " in written
        plugin = tmp_path / f"globex-{kind}" / f"globex_{kind.replace('-', '_')}" / "plugin.py"
        assert f'registry.add("globex-{kind}", ' in plugin.read_text()


@pytest.mark.slow
def test_the_plugins_are_found_and_typed(site):
    shown = command("plugins", path=site).stdout

    assert [name for name in KINDS.values() if not (site / name.replace("-", "_") / "py.typed").exists()] == []

    assert [name for name in KINDS.values() if f"{name}, of {name} 0.1.0: loaded" not in shown] == []


@pytest.mark.slow
def test_a_job_uses_all_of_them_by_name_and_resumes(site, tmp_path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a").write_bytes(b"id=1\nid=2\n")
    line = [sys.executable, "-c", JOB, str(tmp_path)]
    counts = [
        subprocess.run(
            line, env=process_environment(site), capture_output=True, text=True, timeout=120, check=True
        ).stdout
        for _ in range(2)
    ]

    assert counts == ["2\n", "0\n"]
    assert (tmp_path / "written.txt").read_bytes() == b"id=1\nid=2\n"


EXACTLY_ONCE = """
import asyncio, sys
import recordpublisher as rp

async def main(folder):
    properties = {"flink.my-queue.file": f"{folder}/messages.db", "flink.my-lines.folder": folder}
    properties["flink.sink.my-files.folder"] = f"{folder}/files"
    queue = {"publisher": "my-queue", "sink": "memory"}
    lines = {"publisher": "my-lines", "sink": "my-files", "state_uri": f"{folder}/state", "start": "TRIM_HORIZON"}
    for names in (lines, lines, queue):
        async with rp.DataFetcher("orders", properties, **names) as fetcher:
            print((await fetcher.run_bounded(stop_at_tip=True)).records)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_job_commits_with_the_committing_sink_and_another_reads_the_queue(site, tmp_path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a").write_bytes(b"id=1\nid=2\n")
    line = [sys.executable, "-c", EXACTLY_ONCE, str(tmp_path)]
    done = subprocess.run(line, env=process_environment(site), capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout == "2\n0\n0\n", done.stderr
    assert [file.read_bytes() for file in (tmp_path / "files").glob("*-*")] == [b"id=1\nid=2\n"]


OF_JOB = {
    "lines": {
        "flink.stream.recordpublisher": "my-lines",
        "flink.my-lines.folder": ".",
        "flink.sink": "my-file",
        "flink.sink.my-file.file": "lines.txt",
    },
    "files": {
        "flink.stream.recordpublisher": "my-lines",
        "flink.my-lines.folder": ".",
        "flink.sink": "my-files",
        "flink.sink.my-files.folder": "files",
        "flink.state.uri": "state",
    },
    "queue": {"flink.stream.recordpublisher": "my-queue", "flink.my-queue.file": "messages.db", "flink.sink": "memory"},
}


@pytest.mark.slow
def test_doctor_shows_the_checks_of_the_packages(site, tmp_path):
    (tmp_path / "orders").mkdir()
    shown, codes = {}, []
    for name, given in OF_JOB.items():
        lines = [f"{key} = {value}" for key, value in {"flink.streams": "orders", **given}.items()]
        (tmp_path / f"{name}.properties").write_text("\n".join(lines))
        done = command("doctor", f"{name}.properties", path=site, folder=tmp_path)
        shown[name] = [" ".join(line.split()) for line in done.stdout.splitlines()]
        codes.append(done.returncode)

    assert codes == [0, 0, 0], shown
    assert "ok orders: folder orders can be read" in shown["lines"]
    assert "ok sink: folder . can be written" in shown["lines"]
    assert "ok sink: folder files will be created" in shown["files"]
    assert "ok orders: messages messages.db will be created" in shown["queue"]
    (tmp_path / "orders").rmdir()
    (tmp_path / "files").touch()
    for name, words in {
        "lines": "no folder orders can be read",
        "files": "files is not a folder that can be written",
    }.items():
        done = command("doctor", f"{name}.properties", path=site, folder=tmp_path)
        assert done.returncode == 1
        assert words in done.stdout


WRONG = {
    ("sink", "Audit"): "Valid: words in lower case with hyphens, such as audit-log",
    ("sink", "../audit-log"): "Valid: words in lower case",
    ("sink", "taken-name"): "File exists",
    ("tracker", "audit-log"): "is not one of 'publisher', 'queue', 'sink', 'committing-sink', 'store', 'deserializer'",
}


def test_what_cannot_be_written_is_an_error_that_says_what_is_valid(tmp_path):
    (tmp_path / "taken-name").mkdir()

    given = [["new-plugin", *arguments] for arguments in WRONG]
    results = json_results("commands_in_one_process", given, tmp_path)

    for (code, _, errors), said in zip(results, WRONG.values(), strict=True):
        assert code == 2
        assert said in " ".join(errors.split())
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
