"""The page of features names the commands there are."""

from processes.command_line import ROOT, command

FEATURES = ROOT / "docs/reference/features.md"


def test_the_commands_of_the_table_are_those_there_are():
    listed = command("--help").stdout.split("Commands:")[1]
    row = next(line for line in FEATURES.read_text().splitlines() if line.startswith("| Command line |"))

    assert row.split("|")[2].split("`")[1::2] == sorted(line.split()[0] for line in listed.strip().splitlines())
