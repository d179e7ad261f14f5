"""`make docs`: every page is there, in one piece, to be searched and to be read without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.acceptance.command import ROOT

PATIENCE = 900  # seconds: its environment is made first, where there is none
SOURCES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml", "docs", "scripts"]
COUNTED = {"h1", "h2", "h3", "h4", "li", "ol", "ul", "table", "tr", "pre"}
AS_SHOWN_ELSEWHERE = MarkdownIt("commonmark").enable("table")

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(PATIENCE)]


class Elements(HTMLParser):
    """How many of each kind a page has in its text, and what it loads from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.inside = "<article" not in text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = self.inside or tag == "article"
        if self.inside and tag in COUNTED:
            self.found[tag] += 1
        given = dict(attrs)
        address = given.get("href") if tag == "link" and given.get("rel") == "stylesheet" else given.get("src")
        if address and address.startswith(("http:", "https:", "//")):
            self.loaded.append(address)

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(["scripts/docs", made], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def documents() -> dict[str, str]:
    """The text of each page, by its address on the site."""
    found = {
        f"{path.relative_to(ROOT / 'docs').with_suffix('')}.html".replace("README", "index"): path.read_text()
        for path in (ROOT / "docs").rglob("*.md")
    }
    roots = {"index": "README", "changelog": "CHANGELOG", "contributing": "CONTRIBUTING"}
    return found | {f"{name}.html": (ROOT / f"{source}.md").read_text() for name, source in roots.items()}


def test_lists_tables_and_blocks_are_the_same_as_where_the_sources_are_shown(site: Path) -> None:
    """Two readings of Markdown differ, as in how far a list's content is indented."""
    for address, text in documents().items():
        expected = Elements(AS_SHOWN_ELSEWHERE.render(text)).found
        assert (address, Elements((site / address).read_text()).found) == (address, expected)


def test_the_first_page_has_its_pictures(site: Path) -> None:
    shown = re.findall(r' (?:src|srcset)="?(pictures/[\w.-]+)', (site / "index.html").read_text())
    assert len(shown) == 2
    assert all((site / each).is_file() for each in shown)


def test_no_page_needs_a_network(site: Path) -> None:
    assert {page.name: found for page in site.rglob("*.html") if (found := Elements(page.read_text()).loaded)} == {}


def test_every_page_is_found_by_a_search(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    assert set(documents()) <= {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert any("cleanup-after" in entry["text"] for entry in index["docs"])


def test_links_that_lead_nowhere_fail(site: Path, tmp_path: Path) -> None:
    """To a heading of another page, to a page that isn't there, and to a heading of one outside of docs."""
    assert site.exists()  # so does the environment
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    broken = ("limits.md#nothing", "nothing.md", "../README.md#nothing")
    with (tmp_path / "docs/faq.md").open("a") as page:
        page.writelines(f"\n[away]({address})\n" for address in broken)
    command: list[str | Path] = [ROOT / "var/docs/venv/bin/mkdocs", "build", "--site-dir", tmp_path / "made"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = set(re.findall(r"WARNING\b.*'faq\.md' contains a link '([^']*nothing[^']*)'", done.stderr))
    assert len(found) == len(broken), done.stderr
