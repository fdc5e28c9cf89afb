"""Any property with any value: a ConfigurationError at construction, or a fetcher that works (C2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.properties.declaration import declared_properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over

load_registry()  # plugins declare their own properties
OURS = ("aws.", "flink.")  # Spark's options are declared, too, when they were imported
DECLARED = [each for each in declared_properties() if each.key.startswith(OURS)]
KEYS = [key for each in DECLARED for key in (each.key, *each.aliases) if key.startswith(OURS)]
WORDS = [word.strip(" .") for each in DECLARED for word in each.valid.replace(" or ", ",").split(",") if len(word) < 30]
NUMBERS = [
    "-1",
    "0",
    "1",
    "1.5",
    "2",
    "10000",
    "10001",
    "299999",
    "300000",
    str(2**31),
    str(2**63),
    "1e3",
    "1e309",
    "nan",
    "inf",
    "-0",
]
ODD = [
    "",
    " ",
    "\t",
    "true",
    "FALSE",
    "None",
    "null",
    "٣",
    "1_000",
    "0x10",
    "é",
    "\x00",
    "a" * 3000,
    "{}",
    "[1]",
    "%",
    "$",
    "..",
    "/",
    ":",
]
TEXTS = st.sampled_from(NUMBERS + ODD + WORDS) | st.text(max_size=30)
VALUES = (
    TEXTS
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.binary(max_size=8)
    | st.sampled_from([[], {}, (), object(), timedelta(seconds=1), [1, 2], {"a": 1}, b"POLLING", 10**400, -(10**30)])
)
NAMES = st.sampled_from(["orders", "ORDERS", "0].exception", "1].exception", "", "x"])


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """The current folder: some values are paths in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, Any]:
    key = draw(st.sampled_from(KEYS))
    key += draw(NAMES) if key.endswith((".", "[")) else ""
    return draw(st.sampled_from([key, key.lower(), key.upper()])), draw(VALUES)


GIVEN = st.lists(pairs(), min_size=1, max_size=4).map(dict)
NEEDED = {
    "aws.region": "us-east-1",
    "aws.credentials.provider": "BASIC",
    "aws.credentials.provider.basic.accesskeyid": "key",
    "aws.credentials.provider.basic.secretkey": "hush-hush",
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.stream.efo.consumername": "app",
}
PUBLISHERS = st.sampled_from(["POLLING", "EFO"])


def made(properties: dict[str, Any]) -> rp.Properties | None:
    """The properties, when a fetcher can be constructed with them; None for a ConfigurationError. Other errors are raised."""
    given = rp.Properties(properties)
    registration = given.get("flink.stream.efo.registration", given.get("flink.stream.efo.registrar", ""))
    if registration.strip().upper() == "EAGER":  # which calls the service at construction
        return given
    try:
        rp.DataFetcher(["orders"], given, sink=rp.MemorySink())
    except rp.ConfigurationError as error:
        refused = error
    else:
        return given
    assert refused.key in str(refused)
    assert refused.key.lower().startswith(("aws.", "flink."))
    assert "hush-hush" not in str(refused)
    return None


async def read_all(given: rp.Properties) -> list[bytes]:
    """Read a small stream in memory with these properties, on virtual time."""
    account = Account(VirtualClock(), "us-east-1", Delays(consumer=0), None)
    stream = account.create_stream("orders", 2)
    for number in range(4):
        stream.put(b'{"at": 1}', str(number))
    sink = rp.MemorySink()
    fetcher = fetcher_over(MemoryTransport(account), given, sink, VirtualClock())
    await fetcher.open()
    try:
        await fetcher.run_bounded(Bounds(max_time=60, max_records=4))
    finally:
        await fetcher.close()
    return [record.data for record in sink.records]


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(GIVEN, PUBLISHERS)
def test_any_properties_are_a_configuration_error_or_work(properties, publisher):
    given = made({**NEEDED, "flink.stream.recordpublisher": publisher, **properties})
    # None means not set: the default is used
    if given is None or given.get("flink.stream.recordpublisher", "POLLING").strip().upper() not in ("POLLING", "EFO"):
        return
    try:
        run_virtual(read_all(given))
    except rp.ConfigurationError:
        if "EAGER" not in str(given.values()).upper():
            raise  # too late: the constructor should have raised it
    except rp.RecordPublisherError:
        pass  # errors that only the service or a record can cause


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_the_required_properties_are_enough(publisher):
    given = made({**NEEDED, "flink.stream.recordpublisher": publisher})
    assert run_virtual(read_all(given)) == [b'{"at": 1}'] * 4


ODD_VALUES = ("-1", "nan", "1e309", str(2**63), "", "\x00", "٣", True, b"x", [])
FIXED_KEYS = [key for key in KEYS if not key.endswith((".", "["))]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "key"), list(enumerate(FIXED_KEYS)), ids=FIXED_KEYS)
def test_every_key_accepts_an_odd_value_or_is_a_configuration_error(number, key, empty_folder):
    made({**NEEDED, key: ODD_VALUES[number % len(ODD_VALUES)]})
    assert list(empty_folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("key", FIXED_KEYS)
def test_every_key_accepts_each_odd_value_or_is_a_configuration_error(key, empty_folder):
    for value in ODD_VALUES:
        made({**NEEDED, key: value})
    assert list(empty_folder.iterdir()) == []
