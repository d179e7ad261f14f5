"""The layers hold every module, and a name stands for one thing."""

from __future__ import annotations

import ast
import configparser
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "agent").rglob("*.py"))
    if path.name != "__init__.py"
}
UNORDERED: Final = {
    "agent.core",  # its packages use each other's decisions; all of it is pure
    "agent.core.links",
    "agent.pipeline",  # apart, and in the order of one contract
}
WORDS: Final = {
    "mend", "mended", "lookout", "scrutiny", "suspicion", "resting", "unheard", "linger", "lingering", "parked",
    "unfit", "sets_aside", "is_aside", "is_not_aside", "dear", "spell", "told", "tending", "deaf",
}  # fmt: skip
"""Of the list in the project's style: each has a plainer one. Whoever adds another word adds it here."""
STORED: Final = {"told_in"}  # in files of a report that exist


def contracts() -> dict[str, set[str]]:
    """The modules that each contract of layers names."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    layered = (parser[name] for name in parser.sections() if parser[name].get("type") == "layers")
    return {each["name"]: set(re.findall(r"agent[\w.]*", each["layers"])) for each in layered}


def test_every_module_is_in_a_contract_that_orders_its_package() -> None:
    named = set().union(*contracts().values())
    lacking = {
        name
        for name in MODULES
        if name not in named and name.rpartition(".")[0] not in named | UNORDERED and name.rpartition(".")[0] != "agent"
    }
    assert not lacking
    packages = {name.rpartition(".")[0] for name in named}
    beside = {name for name in MODULES if name.rpartition(".")[0] in packages - UNORDERED and name not in named}
    assert not beside, "the others of their packages are in a contract"


def classes() -> Iterator[tuple[str, str]]:
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield node.name, name


def test_a_class_name_stands_for_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, module in classes():
        found[name].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def identifiers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Attribute(attr=name) | ast.Name(id=name):
                yield name


def test_names_are_plain_words() -> None:
    riddles = {
        (module, name)
        for module, path in MODULES.items()
        for name in identifiers(path)
        if name not in STORED and name.strip("_").lower() in WORDS
    }
    assert riddles == set()
