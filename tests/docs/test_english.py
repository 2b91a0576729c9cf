"""Texts are plain English: phrases that were misread once do not come back.

Every text that a person may read is checked: the literals of the program, and the pages. Words in
backquotes and blocks of code are names, not phrases.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: what is banned in every text -> what to write
BANNED = {
    r"(?<!\bthere )\b(is|are|was) no (?!longer|more)": "'is not a …', 'there is no …'",
    r"\bask(s|ed|ing)? for\b": "'request', 'requested'; 'query', 'prompt'",
    r"\b(low|medium|high) confidence\b": "the fact about the data: 'preliminary: 8 of 120 min'",
    r"\bst(oo|a)nds? still\b": "'idle', 'stopped'",
    r"\btell the staff\b": "'report the node'",
    r"\bkeep off\b": "'exclude this node'",
    r"\bpaid for\b": "'charged for'",
    r"\bno process ever\b": "'never used'",
    r"\botherwise than\b": "'unlike'",
    r"(\d|\{\}) m\b": "'8 min'",
}
#: in the program's own texts; pages may speak of people
BANNED_IN_PROGRAM = BANNED | {
    r"\b(says?|said|tells?|told|hears?|heard)\b": "programs report, show, print, receive",
    r"\bknows\b": "programs have, list, find",
    r"\b[Ww]ho\b|\bwhoever\b|\bsomebody\b|\bnobody\b": "name the thing",
    r"\b(?<!\.)asked\b(?! outliers)": "'requested'",
    r"(?<![Nn]ot )\bjudged?\b": "'evaluated'",
    r"\bgo(es)? on\b": "'continue'",
    r"\bwhat it needs\b": "'the real need'",
}
PAGES = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks/README.md")
MODULES = sorted((ROOT / "gpumon").rglob("*.py"))


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Literals of several words with their line; a replacement field is `{}`."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    seen = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            seen.update(ast.walk(node.body[0]))
        elif isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and node not in seen and is_text(node.value):
            yield node.lineno, node.value


def is_text(value: object) -> bool:
    return isinstance(value, str) and " " in value.strip()


def prose(page: str) -> str:
    """The page without code, its lines where they were."""
    page = re.sub(
        r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), page, flags=re.S | re.M
    )
    return re.sub(r"`[^`\n]*`", "`…`", page)


def complaints(text: str, banned: dict[str, str]) -> list[str]:
    return [
        f"{found[0]!r} in {text[:90]!r}: write {better}"
        for pattern, better in banned.items()
        if (found := re.search(pattern, text, re.I))
    ]


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no job id", "Slurm says that", "{} m left", "8 m", "Low confidence.", "asked {}",
        "Ask for fewer GPUs", "the other GPUs go on", "GPU {}: not what it needs",
    ],
)  # fmt: skip
def test_the_worst_is_found(text):
    assert complaints(text, BANNED_IN_PROGRAM)


@pytest.mark.parametrize(
    "text", ["there is no such job", "is no longer running", "8 min", "known GPUs", "ask the staff"]
)
def test_idiom_is_not(text):
    assert not complaints(text, BANNED_IN_PROGRAM)


def test_the_program_speaks_plain_english():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {complaint}"
        for path in MODULES
        for line, text in texts(ast.parse(path.read_text()))
        for complaint in complaints(text, BANNED_IN_PROGRAM)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_pages_speak_plain_english(path):
    lines = prose(path.read_text()).split("\n")
    found = [
        f"{path.name}:{number}: {complaint}"
        for number, line in enumerate(lines, 1)
        for complaint in complaints(line, BANNED)
    ]
    assert not found, "\n".join(found)
