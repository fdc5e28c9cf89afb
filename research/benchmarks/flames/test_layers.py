"""Flame graphs: the layers name files of the library that exist, and every top folder has a colour."""

from pathlib import Path

import pytest

import recordpublisher

from benchmarks.flames.layers import LAYERS
from benchmarks.flames.svg import COLOURS

PACKAGE = Path(recordpublisher.__file__).parent
FOLDERS = sorted(f"{folder.name}/" for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())
PREFIXES = sorted({prefix for prefixes in LAYERS.values() for prefix in prefixes if prefix.startswith(tuple(FOLDERS))})


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_layers_prefix_is_a_folder_or_a_file_of_the_library(prefix):
    path, _, function = prefix.partition(":")
    place = PACKAGE / path
    assert place.is_dir() if path.endswith("/") else place.is_file()
    if function:
        assert f"def {function.rpartition('.')[2]}(" in place.read_text()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_top_folder_has_a_colour(folder):
    assert folder in COLOURS


def test_layers_of_the_library_are_named():
    assert {prefix.partition("/")[0] for prefix in PREFIXES} >= {"publishers", "consumer", "fetcher", "plugins"}
