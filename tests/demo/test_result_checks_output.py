"""Reading back the Parquet sink's own log."""

import json

from recordpublisher.demo.result_checks import files_by_batch


def log_entry(folder, name, *paths):
    lines = ["v1", *(json.dumps({"path": f"file://{path}", "action": "add"}) for path in paths)]
    (folder / name).write_text("\n".join(lines))


def test_a_compacted_entry_adds_only_the_files_of_its_own_batch(tmp_path):
    log_entry(tmp_path, "0", "/x/a.parquet")
    log_entry(tmp_path, "1", "/x/b%20b.parquet")
    log_entry(tmp_path, "2.compact", "/x/a.parquet", "/x/b%20b.parquet", "/x/c.parquet")
    log_entry(tmp_path, "3", "/x/d.parquet")
    (tmp_path / ".3.crc").write_bytes(b"\x00")

    assert files_by_batch(tmp_path) == {
        0: ["/x/a.parquet"],
        1: ["/x/b b.parquet"],
        2: ["/x/c.parquet"],
        3: ["/x/d.parquet"],
    }


def test_no_log_means_no_files(tmp_path):
    assert files_by_batch(tmp_path / "missing") == {}
