"""How large gpumon is: each part may only shrink until it has the size that it shall have.

A code line has code on it: blank lines, comments and docstrings are none.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: code lines of folders and modules of gpumon: what they shall have, and the budget. What makes
#: a part smaller lowers its budget
PARTS = {
    "model": (1700, 1867),
    "wire": (520, 583),
    "frames": (1500, 1650),
    "collect": (4500, 6682),
    "probe": (500, 789),
    "transport": (1950, 3422),
    "sources": (1150, 1264),
    "recording": (1800, 2075),
    "store": (620, 678),
    "slurm": (2050, 2893),
    "site config toml": (450, 592),
    "analysis": (9300, 13288),
    "report": (2250, 3290),
    "chart export exporter prometheus": (2400, 3157),
    "pipeline": (800, 918),
    "services": (2500, 3942),
    "tui": (5900, 8520),
    "*": (1610, 2269),  # all others: the command line, the interface for notebooks, single modules
}
#: lines and files, with blanks and comments, in the same way
TREES = {
    "lines of gpumon": (54_000, 80_484),
    "files of gpumon": (300, 542),
    "lines of tests": (45_000, 76_194),
    "files of tests": (400, 516),
}
#: that may be missing in a budget: code lines, lines of a tree, files
SLACK, SLACK_LINES, SLACK_FILES = 20, 200, 5
_BLANK = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


@cache
def of_parts() -> dict[str, int]:
    parts = {name: part for part in PARTS for name in part.split()}
    found = dict.fromkeys(PARTS, 0)
    for path in _files("gpumon"):
        name = path.relative_to(ROOT / "gpumon").parts[0].removesuffix(".py")
        found[parts.get(name, "*")] += code_lines(path.read_text())
    return found


def of_tree(name: str) -> int:
    what, _, folder = name.partition(" of ")
    if what == "files":
        return sum(1 for _ in _files(folder))
    return sum(path.read_text().count("\n") for path in _files(folder))


def _files(folder: str) -> Iterator[Path]:
    """Of the repository: what a build or a run leaves is none of it."""
    return (path for path in (ROOT / folder).rglob("*.py") if "build" not in path.parts)


@pytest.mark.parametrize("part", PARTS)
def test_code_lines(part):
    holds(part, of_parts()[part], *PARTS[part], SLACK)


@pytest.mark.parametrize("tree", TREES)
def test_trees(tree):
    slack = SLACK_FILES if tree.startswith("files") else SLACK_LINES
    holds(tree, of_tree(tree), *TREES[tree], slack)


def holds(name: str, found: int, aim: int, budget: int, slack: int) -> None:
    assert found <= budget, f"{name}: {found}, and may have {budget} at most; the aim is {aim}"
    lowest = max(found, aim)
    assert budget <= lowest + slack, f"{name}: smaller than its budget, which is now {lowest}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""Says\n\nmuch."""\n\n# a comment\nx = 1  # another\n', 1),
        ('def f():\n    """Says."""\n    return """a\n\n    b"""\n', 4),
        ("x = [\n    1,\n\n    # why\n    2,\n]\n", 4),
        ('class A:\n    "Says."\n\n    y: int = 0\n', 2),
    ],
)
def test_what_a_code_line_is(source, count):
    assert code_lines(source) == count


@pytest.mark.parametrize(
    ("found", "budget", "is_right"),
    [(110, 110, True), (111, 110, False), (90, 110, True), (89, 110, False), (40, 60, True),
     (40, 71, False)],
)  # fmt: skip
def test_budgets_only_fall(found, budget, is_right):
    if is_right:
        holds("made", found, 50, budget, 20)
    else:
        with pytest.raises(AssertionError, match="made: "):
            holds("made", found, 50, budget, 20)
