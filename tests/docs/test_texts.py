"""The written pages: their links lead somewhere, and the messages they quote are printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("tests/*/README.md"),
    ]
)
_LINK = re.compile(r"!?\[[^][]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```", re.S)


def _anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", _CODE.sub("", page.read_text()), re.M)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_the_index_lists_every_page():
    listed = set(_LINK.findall((ROOT / "docs" / "index.md").read_text()))
    pages = {path.name for path in ROOT.glob("docs/*.md")} - {"index.md"}
    assert pages <= {link.partition("#")[0] for link in listed}


_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py|(?:[a-z_]+/){2,})`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_project_that_is_named_exists(page):
    gone = [
        name
        for name in _FILE.findall(page.read_text())
        if not any((root / name).exists() for root in (ROOT, ROOT / "gpumon", page.parent))
    ]
    assert gone == []


def test_files_are_named():
    assert sum(len(_FILE.findall(page.read_text())) for page in PAGES) > 30


def _rows() -> list[str]:
    """The parts in the table of the architecture: `model/`, `wire.py`."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"^\| `([a-z_]+(?:/|\.py))` \|", text, re.M)


def test_the_architecture_has_a_row_for_every_part():
    assert sorted(_rows()) == sorted(
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "gpumon").iterdir()
        if path.name[0] != "_" and path.suffix in ("", ".py")
    )


def test_its_rows_stand_in_the_order_of_the_contract():
    contract = re.search(r"^layers = \[.*?^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    layers = re.findall(r'^    "(gpumon\..*)",', contract.group(), re.M)[::-1]
    rank = {
        part.strip().removeprefix("gpumon."): at
        for at, layer in enumerate(layers)
        for part in layer.split("|")
    }
    ranks = [rank[row.rstrip("/").removesuffix(".py")] for row in _rows()]
    assert ranks == sorted(ranks)


# -- messages ----------------------------------------------------------------------------------
def _texts(tree: ast.AST) -> Iterator[str]:
    """Every string in the code; what is filled in stands as `…`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
            yield "".join(map(str, parts))


@pytest.fixture(scope="module")
def printed() -> list[str]:
    files = (ROOT / "gpumon").rglob("*.py")
    said = [_bare(text) for path in files for text in _texts(ast.parse(path.read_text()))]
    return [*said, (ROOT / "bin" / "venv").read_text()]


def _bare(text: str) -> str:
    """Without markers for what is filled in next to each other, or at the ends."""
    return re.sub(r"…+", "…", text).strip("… \n")


def _quoted() -> list[str]:
    """The first cells of tables that are code; `N` and the like stand for names."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    cells = re.findall(r"^\| (`[^`]+`) \|", text, re.M)
    table = (ROOT / "docs" / "ssh.md").read_text().partition("## When it fails")[2]
    for row in re.findall(r"^\| (`.*?) \|", table, re.M):
        cells += re.findall(r"`[^`]+`", row)
    return [re.sub(r"\b(USER@N|[NPL])\b", "…", cell.strip("`")) for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("message", _quoted())
def test_a_quoted_message_is_one_that_gpumon_prints(message, printed):
    assert any(_bare(message) in text for text in printed)


def test_messages_are_quoted():
    assert len(_quoted()) > 20
