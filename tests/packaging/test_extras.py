"""How to install a missing extra, by where the package came from."""

import pytest

from recordpublisher.install_commands import install_command, install_command_of

FOLDER = '{"url": "file:///home/me/record%20publisher", "dir_info": {"editable": EDITABLE}}'
WHEEL = '{"url": "file:///tmp/recordpublisher-0.1.0-py3-none-any.whl", "archive_info": {}}'


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'recordpublisher[sql]'"),
        ('{"url": "https://example.org/x.whl", "archive_info": {}}', "pip install 'recordpublisher[sql]'"),
        (FOLDER.replace("EDITABLE", "true"), "pip install -e '/home/me/record publisher[sql]'"),
        (FOLDER.replace("EDITABLE", "false"), "pip install '/home/me/record publisher[sql]'"),
        (WHEEL, "pip install '/tmp/recordpublisher-0.1.0-py3-none-any.whl[sql]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(direct_url, command):
    assert install_command_of(direct_url, "sql") == command


def test_metadata_that_a_build_left_beside_the_source_hide_nothing(tmp_path, monkeypatch):
    before = install_command("sql")
    (tmp_path / "recordpublisher.egg-info").mkdir()
    (tmp_path / "recordpublisher.egg-info/PKG-INFO").write_text("Name: recordpublisher\nVersion: 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("sql") == before
