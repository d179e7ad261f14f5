"""What the site of the documents adds to docs/: the README as its first page, and two more of the root of the checkout.

A hook of MkDocs. Links between the root and docs/ are those of the checkout, so that they work there, too.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
FROM_THE_ROOT = re.compile(r'(\]\(|(?:src|srcset)=")(?:docs/)?(?=[\w#])(?!https?:)')
TO_THE_ROOT = re.compile(rf"\]\(\.\./({'|'.join(map(re.escape, PAGES))})")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=moved((ROOT / source).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return TO_THE_ROOT.sub(lambda found: f"]({PAGES[found[1]]}", markdown)


def moved(text: str) -> str:
    """As it has to be written in docs/."""
    inside = FROM_THE_ROOT.sub(r"\1", text)
    return re.sub(rf"\]\(({'|'.join(map(re.escape, PAGES))})", lambda found: f"]({PAGES[found[1]]}", inside)
