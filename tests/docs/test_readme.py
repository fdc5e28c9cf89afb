"""The README names the commands there are. test_migrations.py runs its program."""

from processes.command_line import ROOT, command

README = ROOT / "README.md"


def test_the_commands_of_the_table_are_those_there_are():
    listed = command("--help").stdout.split("Commands:")[1]
    row = next(line for line in README.read_text().splitlines() if line.startswith("| Command line |"))
    today, not_yet = (cell.split("`")[1::2] for cell in row.split("|")[2:4])

    assert sorted(today) == sorted(line.split()[0] for line in listed.strip().splitlines())
    assert not set(not_yet) & set(today)
