"""`recordpublisher plugins`."""

from processes.command_line import command


def test_the_built_ins_are_listed():
    done = command("plugins")

    assert done.returncode == 0
    assert "builtins, of recordpublisher" in done.stdout
    assert (
        "publishers: ARCHIVE (recordpublisher), DYNAMODB_STREAMS (recordpublisher), EFO (recordpublisher), "
        "POLLING (recordpublisher), QUEUE (recordpublisher)" in done.stdout
    )


def test_a_blocked_plugin_is_shown_as_such():
    done = command("plugins", RECORDPUBLISHER_BLOCK_PLUGINS="builtins")

    assert ": blocked (named in RECORDPUBLISHER_BLOCK_PLUGINS)" in done.stdout
    assert "publishers: none" in done.stdout


def test_a_blocked_name_that_is_not_a_plugin_is_reported():
    done = command("plugins", RECORDPUBLISHER_BLOCK_PLUGINS="buildins")

    assert done.returncode == 0
    assert "  RECORDPUBLISHER_BLOCK_PLUGINS names 'buildins', but no plugin of that name is installed" in done.stdout


def installed(site, distribution: str, source: str) -> None:
    """Write a distribution with one module, as pip would install it."""
    (site / f"{distribution}.py").write_text(source)
    info = site / f"{distribution}-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[recordpublisher]\nmine = {distribution}\n")


CLAIMS_EFO = """
from recordpublisher import hookimpl

@hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("efo", "somewhere:Factory")
"""


def test_a_class_that_cannot_be_imported_is_told(tmp_path):
    installed(tmp_path, "mistaken", CLAIMS_EFO.replace("efo", "lines"))

    done = command("plugins", path=tmp_path)

    assert (
        "the publisher 'lines' of mistaken 0.3 cannot be imported from somewhere:Factory: ModuleNotFoundError: No module"
        in done.stdout
    )


def test_a_broken_plugin_is_listed_with_its_reason_and_the_others_work(tmp_path):
    installed(tmp_path, "broken", "import a_package_that_is_not_there")

    done = command("plugins", path=tmp_path)

    assert done.returncode == 0
    reason = "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"
    assert f"mine, of broken 0.3: failed ({reason} at {tmp_path / 'broken.py'}:1 (<module>))" in done.stdout
    assert (
        "publishers: ARCHIVE (recordpublisher), DYNAMODB_STREAMS (recordpublisher), EFO (recordpublisher), "
        "POLLING (recordpublisher), QUEUE (recordpublisher)" in done.stdout
    )
    assert done.stderr == ""


def test_the_error_of_a_missing_name_tells_once_why_its_plugin_was_not_loaded(tmp_path):
    installed(tmp_path, "broken", "import a_package_that_is_not_there")

    (tmp_path / "job.properties").write_text("aws.region=us-east-1\nflink.streams=orders\nflink.sink=mine\n")

    done = command("run", str(tmp_path / "job.properties"), path=tmp_path)

    assert done.returncode == 2
    assert done.stderr.count("a_package_that_is_not_there") == 1


def test_a_name_claimed_twice_is_one_line_that_names_both(tmp_path):
    installed(tmp_path, "taker", CLAIMS_EFO)

    done = command("plugins", path=tmp_path)

    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if "is registered by" in line]
    assert line.startswith("  the publisher 'efo' is registered by recordpublisher ")
    assert "and by taker 0.3 (plugin 'mine')" in line


def test_a_name_claimed_twice_is_no_error_when_one_plugin_is_blocked(tmp_path):
    installed(tmp_path, "taker", CLAIMS_EFO)

    assert command("plugins", path=tmp_path, RECORDPUBLISHER_BLOCK_PLUGINS="taker").returncode == 0
