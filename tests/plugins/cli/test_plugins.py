"""`recordpublisher plugins`."""

from command_line import command


def test_the_built_ins_are_listed():
    done = command("plugins")

    assert done.returncode == 0
    assert "builtins, of recordpublisher" in done.stdout
    assert "publishers: EFO (recordpublisher), POLLING (recordpublisher)" in done.stdout


def test_a_blocked_plugin_is_shown_as_such():
    done = command("plugins", RECORDPUBLISHER_BLOCK_PLUGINS="builtins")

    assert ": blocked (named in RECORDPUBLISHER_BLOCK_PLUGINS)" in done.stdout
    assert "publishers: none" in done.stdout
