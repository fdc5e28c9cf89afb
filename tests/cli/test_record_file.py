"""How `tail` writes records: as JSON lines, as columns, or as a schema."""

import json
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.cli import record_file as record_files
from recordpublisher.cli.record_file import RecordFormat, json_line, record_file
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.deserializers.schemas import schema_type

from fakes.batches import batch


def record(data=b"text"):
    (made,) = batch(data)
    return made


def printed(data):
    return json.loads(json_line(record(data)))["data"]


def test_a_line_has_every_field_of_a_record():
    assert json.loads(json_line(record(b"hello"))) == {
        "stream": "orders",
        "shardId": "shardId-0",
        "sequenceNumber": "1",
        "subSequenceNumber": -1,
        "partitionKey": "key",
        "approximateArrivalTimestamp": "2023-11-14T22:13:20.500+00:00",
        "eventTime": 1_700_000_000_500,
        "data": "hello",
    }


@pytest.mark.parametrize("data", [b'{"id": 1, "big": 123456789012345678901234567890}', b' [1, {"a": "\xc3\xa9"}]\n'])
def test_an_object_or_array_is_printed_as_json(data):
    line = json_line(record(data))
    assert line.count(b"\n") == 1
    assert json.loads(line)["data"] == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [b"text", "é 😀\n".encode(), b"5", b'"quoted"', b"{broken", b'{"a": 1} {"b": 2}', b"[" * 5_000, b""],
    ids=["text", "unicode", "number", "string", "broken", "two", "deep", "empty"],
)
def test_anything_else_is_printed_as_text(data):
    assert printed(data) == data.decode()


def test_bytes_that_are_no_text_are_marked_as_base64():
    fields = json.loads(json_line(record(b"{\xff}")))
    assert (fields["data"], fields["base64"]) == ("e/99", True)


def written(path, kind, *batches):
    with record_file(kind, path) as file:
        for one in batches:
            for record in one:
                file.write(record)
            file.flush()
    return path


READERS = {
    RecordFormat.PARQUET: pq.read_table,
    RecordFormat.ARROW: lambda path: pa.ipc.open_file(path).read_all(),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_of_columns_has_those_of_spark_for_each_record(tmp_path, kind):
    one, other = batch(b"a", b"\xff"), batch(b"b", shard_id="shardId-1")
    table = READERS[kind](written(tmp_path / "file", kind, one, other))

    assert table.schema == RECORD_SCHEMA
    assert table.to_pylist() == rp.to_arrow(one, other).to_pylist()


def test_csv_has_a_head_and_a_line_for_each_record(tmp_path):
    path = written(tmp_path / "file.csv", RecordFormat.CSV, batch(b'{"a":1}'))

    assert pa.csv.read_csv(path).column_names == RECORD_SCHEMA.names
    assert pa.csv.read_csv(path)["data"].to_pylist() == ['{"a":1}']


def test_csv_has_escapes_for_what_is_not_utf8(tmp_path):
    path = written(tmp_path / "file.csv", RecordFormat.CSV, batch("\u00e9".encode("latin-1"), "\u00e9".encode()))

    assert pa.csv.read_csv(path)["data"].to_pylist() == ["\\xe9", "\u00e9"]


@pytest.mark.parametrize("kind", [RecordFormat.PARQUET, RecordFormat.ARROW])
def test_a_terminal_gets_no_binary_file(kind, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    with pytest.raises(rp.ConfigurationError, match="a terminal cannot show this format"), record_file(kind, None):
        pass


def test_records_are_written_together_and_before_they_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "ROWS_TOGETHER", 3)
    path = written(tmp_path / "file", RecordFormat.PARQUET, *[batch(b"x")] * 4)

    assert [pq.ParquetFile(path).metadata.row_group(number).num_rows for number in range(2)] == [3, 1]


def test_records_that_are_too_large_together_are_written_too(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "BYTES_TOGETHER", 2)
    path = written(tmp_path / "file", RecordFormat.PARQUET, *[batch(b"x")] * 4)

    assert pq.ParquetFile(path).metadata.num_row_groups == 2


@pytest.mark.parametrize("kind", RecordFormat)
def test_a_read_without_records_leaves_a_file_that_can_be_read(tmp_path, kind):
    path = written(tmp_path / "file", kind)

    assert kind not in READERS or READERS[kind](path).num_rows == 0
    assert path.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with (
        pytest.raises(rp.ConfigurationError, match=r"'--output' is .*No such file"),
        record_file(RecordFormat.CSV, tmp_path / "none" / "file"),
    ):
        pass


@pytest.mark.parametrize("kind", RecordFormat)
def test_an_earlier_file_stays_until_the_first_record(tmp_path, kind):
    earlier, new = tmp_path / "earlier", tmp_path / "new"
    earlier.write_bytes(b"much earlier content" * 100)
    for path in (earlier, new):
        with pytest.raises(ValueError, match="no stream"), record_file(kind, path):
            raise ValueError("no stream")
    assert earlier.read_bytes() == b"much earlier content" * 100
    assert not new.exists()
    written(earlier, kind, batch(b"x"))
    written(new, kind, batch(b"x"))
    assert earlier.read_bytes() == new.read_bytes()


def test_an_earlier_file_stays_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "file").write_bytes(b"earlier")
    with pytest.raises(ImportError, match="extra 'arrow'"):
        written(tmp_path / "file", RecordFormat.PARQUET)
    assert (tmp_path / "file").read_bytes() == b"earlier"


def test_a_run_without_records_replaces_the_file(tmp_path):
    (tmp_path / "file").write_bytes(b"earlier")
    assert pq.read_table(written(tmp_path / "file", RecordFormat.PARQUET)).num_rows == 0


def test_a_schema_is_one_line_that_can_be_pinned(tmp_path, capsys):
    payloads = [b'{"id": 1, "price": 2}', b'{"price": 2.5, "at": null, "of": {"a b": ["x"]}}', b"[1]", b"text", b"\xff"]
    path = written(tmp_path / "schema", RecordFormat.SCHEMA, batch(*payloads), batch(b'{"a":' * 50 + b"1" + b"}" * 50))

    text = path.read_text()
    assert text == "id BIGINT, price DOUBLE, of STRUCT<`a b`: ARRAY<STRING>>\n"
    assert schema_type(rp.Properties(deserializer_schema=text.strip())) is not None
    assert "4 records without a JSON object" in capsys.readouterr().err


def test_records_without_fields_have_no_schema_and_a_note(tmp_path, capsys):
    assert written(tmp_path / "schema", RecordFormat.SCHEMA, batch(b"{}")).read_text() == ""
    assert "0 records without a JSON object" in capsys.readouterr().err
