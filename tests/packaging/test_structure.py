"""The layout of the repository: folders are small packages that say what is inside, and imports stay short."""

import ast
import importlib
import re
from collections import Counter
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

from processes.command_line import ROOT

PACKAGE = ROOT / "src" / "recordpublisher"
MOST_FILES = 20
"""In a folder, `__init__.py` not counted."""
LONGEST_IMPORT = 2
"""Dots of a relative import; what is further away is imported by its whole name."""


def python_files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*.py")) if "node_modules" not in file.parts]


@pytest.mark.parametrize("top", [PACKAGE, ROOT / "tests", ROOT / "research"], ids=["package", "tests", "research"])
def test_no_folder_has_more_files_than_a_reader_can_overlook(top):
    counted = Counter(file.parent for file in python_files(top) if file.name != "__init__.py")

    assert counted
    assert {str(folder.relative_to(ROOT)): files for folder, files in counted.items() if files > MOST_FILES} == {}


def test_research_and_examples_import_names_that_exist():
    """They run seldom, and no type checker reads them."""
    files = [file for folder in ("research", "examples", "docs") for file in python_files(ROOT / folder)]
    imports = [
        (file, node.module, alias.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] == "recordpublisher"
        and not node.level
        for alias in node.names
    ]

    assert [
        f"{file.relative_to(ROOT)}: {module}.{name}"
        for file, module, name in imports
        if not is_importable(module, name)
    ] == []


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions count: they run later, and depend on the same modules."""
    graph = grimp.build_graph("recordpublisher", exclude_type_checking_imports=True, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    assert len(imported) > 150
    TopologicalSorter(imported).prepare()  # raises CycleError, which names a circle


def is_importable(module: str, name: str) -> bool:
    """Whether `from module import name` works."""
    found = importlib.import_module(module)
    return hasattr(found, name) or (hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


def test_relative_imports_climb_one_folder_at_most():
    texts = {file: file.read_text(encoding="utf-8") for file in python_files(PACKAGE)}
    far = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file, text in texts.items()
        if f"from {'.' * (LONGEST_IMPORT + 1)}" in text  # most files need not be parsed
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.level > LONGEST_IMPORT
    ]

    assert far == []


def test_every_folder_of_the_package_says_what_is_inside():
    folders = {file.parent for file in python_files(PACKAGE)}
    silent = [
        str(folder.relative_to(ROOT))
        for folder in folders
        if not (folder / "__init__.py").exists()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]

    assert silent == []


NAMED = re.compile(r"(?<![\w/.:])((?:\.\./)?[a-z_][\w/]*(?:\.(?:py|md)|/))(?![\w])")
"""A file, or a folder with a slash behind it."""


def missing_names(init: Path, package: Path) -> list[str]:
    """The files and folders that the docstring of an `__init__.py` names, beside it or from the package's root, and that are not there."""
    docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    roots = init.parent, package, package.parents[1]
    return [name for name in NAMED.findall(docstring) if not any((root / name).exists() for root in roots)]


def test_every_file_and_folder_that_a_docstring_of_a_folder_names_is_there():
    missing = {str(init.relative_to(PACKAGE)): missing_names(init, PACKAGE) for init in PACKAGE.rglob("__init__.py")}

    assert missing
    assert {init: names for init, names in missing.items() if names} == {}


@pytest.mark.parametrize(
    ("docstring", "missing"),
    [
        ("Start at `here.py` or `inner/`.", []),
        ("Start at `gone.py`.", ["gone.py"]),
        ("Start reading in gone.py.", ["gone.py"]),
        ("The operations are in `gone/`.", ["gone/"]),
        ("See `inner/gone.py` and the paths `s3://bucket/` or and/or.", ["inner/gone.py"]),
    ],
)
def test_a_name_without_a_file_or_folder_is_found(tmp_path, docstring, missing):
    package = tmp_path / "src" / "package"
    (package / "inner").mkdir(parents=True)
    (package / "here.py").touch()
    init = package / "__init__.py"
    init.write_text(f'"""{docstring}"""\n')

    assert missing_names(init, package) == missing


DECIDED = re.compile(r"^\| [^|]+ \| `([\w/]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)
"""A row of "Where is it decided?": a behaviour, its file, and the name to begin with."""


def names_in(file: Path) -> set[str]:
    """The functions, classes and constants that a file defines, and `Class.method` of its classes."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                found |= {name, *(f"{name}.{each.name}" for each in body if hasattr(each, "name"))}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def test_each_behaviour_is_decided_where_the_architecture_page_says():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    rows = DECIDED.findall(page.partition("## Where is it decided?")[2].partition("\n## ")[0])

    assert len(rows) > 70
    assert [row for row in rows if not (PACKAGE / row[0]).is_file() or row[1] not in names_in(PACKAGE / row[0])] == []


TOPICS = {
    "plugins/runtime/identity": "who acts as the job, and until when",
    "publishers/kinesis/tls": "connections over TLS, of every transport",
    "plugins/sinks/kinesis/in_a_job": "the sink in whole jobs",
    "fetcher/pipeline/memory": "bytes in flight: of queues, reads and lost shards",
    "plugins/spark/jobs": "whole Spark jobs",
    "plugins/spark/versions": "whole Spark jobs on each version of PySpark",
    "local/foreign": "the endpoint beside other Kinesis servers",
}
"""Folders of tests whose subject is more than one folder or file of the package."""


def test_a_folder_of_tests_has_the_path_of_its_subject():
    tops = [folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()]
    folders = {file.parent for top in tops for file in (ROOT / "tests" / top.name).rglob("test_*.py")}
    paths = {folder.relative_to(ROOT / "tests") for folder in folders if "node_modules" not in folder.parts}

    homeless = {str(path) for path in paths if not (PACKAGE / path).is_dir() and not (PACKAGE / f"{path}.py").is_file()}

    assert homeless == set(TOPICS)
