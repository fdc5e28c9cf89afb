"""Refuses to build where the links to the floors did not survive: the wheel would be empty. The rest stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

PACKAGE = Path(__file__).parent / "src" / "recordpublisher"
broken = [floor for floor in ("publishers", "consumer", "fetcher", "plugins") if not (PACKAGE / floor).is_dir()]
if broken:
    raise SystemExit(
        f"src/recordpublisher/{broken[0]} is not a directory but should be a symbolic link to one: this checkout has no symbolic "
        "links (on Windows: `git config core.symlinks true` with developer mode on, then check out again)"
    )

setup()
