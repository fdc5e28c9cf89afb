"""For all tests: a slow example is the machine's fault, not the code's; tests of Spark need pyspark and Java 17; the closing line."""

import functools
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from conformance.skipped_rows import SkippedRows
from first_compilation import compile_part
from kept_log_settings import kept_log_settings
from random_inputs import inputs

settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    max_examples=inputs(100, 25),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

JAVA = 17
NO_JAVA = f"Java {JAVA} or newer is missing: tests of Spark are skipped"
NO_PYSPARK = "pyspark is missing: tests of Spark are skipped (pip install 'recordpublisher[spark]')"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Spark of a test lives for a minute: to compile and to collect as a server does costs it a third of its CPU."""
SPARK_CLASSES = Path(sys.prefix, "spark.jsa")
"""Spark's classes as Java keeps them in memory, where `make spark-classes` has stored them: a quarter of the CPU of a start."""
WORKER_WAS_SLOW = "to connect back"
"""Spark waits ten seconds for a new Python process, which nothing can change; a machine that is shared may need more."""
CHECKS_LEAKS = os.environ.get("RECORDPUBLISHER_LEAKS") == "1"
"""`make leaks`. Elsewhere a socket left open is no error: it would be found by chance, and not in the test that left it."""


@functools.cache
def has_pyspark() -> bool:
    """Whether pyspark can be imported; it is tried only where a test needs it."""
    try:
        importlib.import_module("pyspark")
    except ImportError:
        return False
    return True


def has_java() -> bool:
    """Whether Spark finds a Java that it runs on: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if program is None:
        return False
    said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return version is not None and int(version[1]) >= JAVA


def pytest_configure(config: pytest.Config) -> None:
    """Only `make leaks` reports what is left open. SIGINT reaches the tests and the commands that they start, also where the shell has
    started the tests in the background, which ignores it. What is set for Spark's Java stays (`make bench-spark` sets nothing)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(SkippedRows())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
    classes = f" -XX:SharedArchiveFile={SPARK_CLASSES}" if SPARK_CLASSES.exists() else ""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA + classes)
    if not CHECKS_LEAKS:
        config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """For `make leaks`, collect what the test has left: then it is the one that fails."""
    yield
    if CHECKS_LEAKS:
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Leave thousands of tests, and all that they import, to no later garbage collection: each looked at them again."""
    compile_part(session.config)
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)
    gc.enable()
    return result


@pytest.fixture
def no_garbage_collection() -> Generator[None, None, None]:
    """For a test of CPU seconds: a collection of what thousands of tests have left may fall into any of them."""
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that cannot be imported without pyspark. All of them share one line, that of this file."""
    report = yield
    if report.failed and "pyspark" in report.longreprtext and os.environ.get("CI") != "true" and not has_pyspark():
        report.outcome, report.longrepr = "skipped", (__file__, 1, NO_PYSPARK)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The sample Spark job comes first: it waits for Java while the other worker goes on.

    What needs Spark is skipped where pyspark or Java is missing, with one line that says so; where CI=true that is a failure.
    """
    items.sort(key=lambda item: item.get_closest_marker("sample") is None)
    for item in items:
        # Without the marker the test would start a second Spark in `make test`, and would fail where Java is missing.
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("spark"):
            raise pytest.UsageError(f"{item.nodeid} uses the fixture `spark` and has no marker `spark`")
    needing = [item for item in items if item.get_closest_marker("spark")]
    if not needing:
        return
    missing = NO_PYSPARK if not has_pyspark() else NO_JAVA if not has_java() else None
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(missing)
    for item in needing:
        item.add_marker(pytest.mark.skip(reason=missing))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of Spark once more when a Python worker could not connect in time, and only then."""
    if not item.get_closest_marker("spark"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(WORKER_WAS_SLOW in report.longreprtext for report in reports if report.failed):
        print(f"\n{item.nodeid}: a Python worker of Spark could not connect in ten seconds; the test runs once more")
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(autouse=True)
def log_settings_of_each_test() -> Generator[None]:
    """A command that ran in this process has set the level and the handlers of the log: the next test has what there was."""
    with kept_log_settings():
        yield


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Close with one line: how many tests passed and failed, and why some were skipped."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    counts = {kind: len(reporter.stats.get(kind, ())) for kind in ("failed", "error", "passed")}
    said = [f"{count:,} {kind}" for kind, count in counts.items() if count or kind == "passed"]
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ()))
    skipped = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    print(", ".join(said), f"skipped: {skipped}" if skipped else "none skipped", sep="; ")
