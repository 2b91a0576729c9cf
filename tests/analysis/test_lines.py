"""Nothing that a stranger named becomes more than one value of a line to paste."""

from __future__ import annotations

import ast
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import gpumon
from gpumon.analysis.finding import Action, Change, Gpus
from gpumon.analysis.rightsize.directives import apply, apply_to_submit_line
from gpumon.analysis.rules.catalogue import evaluate
from gpumon.model import lines
from gpumon.model.lines import Line, Word
from gpumon.report.build import build
from gpumon.report.render.html import html_page
from gpumon.report.render.markdown import markdown
from tests.analysis.hostile import ATTACKS, arguments, directives, hostile, poisoned
from tests.corpus.cases import all_cases
from tests.support.examples import examples

CASES = all_cases()
#: one case for each finding: all of them would take minutes
WITH_ACTIONS = sorted({
    next(name for name, case in CASES.items() if id in case.finds)
    for id in {id for case in CASES.values() for id in case.finds}
})  # fmt: skip
#: words of commands that stand for what the user has to fill in, or are the shell's own
SHELL = {"export", "srun", "python", "cp", "nsys", "gpumon", "less", "scancel", "sbatch",
         "kill", "compute-sanitizer", "taskset"}  # fmt: skip


def check(finding, plain):
    """Each line has the words that it has for harmless names, or it is left out."""
    for n, action in enumerate(finding.actions):
        for line in filter(None, (action.before, action.after)):
            if action.kind == "sbatch":
                assert directives(line)
            elif action.kind == "staff":
                assert not set(line) & set(";&|<>$`\\'\"\n#!*{}~"), line
                assert line.isprintable()
            elif action.kind in ("shell", "export"):
                words = arguments(line)
                assert words[0] in SHELL, line
                for same in plain.get((finding.id, n), ()):
                    assert len(words) == len(arguments(same)), (line, same)
        assert action.text.isprintable()


def checked(name, change):
    case = CASES[name]
    plain: dict = {}
    for each in case.evaluation.raised:
        for n, action in enumerate(each.actions):
            plain.setdefault((each.id, n), set()).add(action.after)
    plain = {key: found for key, found in plain.items() if len(found) == 1 and all(found)}
    report = build(poisoned(case.evidence, change))
    for finding in (*report.findings, *report.suppressed):
        check(finding, plain)
    changes = [each.change for each in report.recommendations]
    for one in changes:
        if one.option and one.line:
            assert directives(one.line) == [one.option.lstrip("-")]
    for script in ("#!/bin/bash\n", "#!/bin/bash\n#SBATCH --mem=64G --gres=gpu:a100:4 -c 8\n"):
        for line in apply(script, changes).splitlines():
            if line.startswith("#SBATCH"):
                directives(line)
    changed = apply_to_submit_line("sbatch job.sh", changes)
    arguments(changed)
    assert changed.startswith("sbatch ")
    no_markup(report)
    return report


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        assert all(not name.startswith("on") and name not in ("href", "src") for name, _ in attrs)


def no_markup(report):
    tags = _Tags()
    tags.feed(html_page([report]))
    assert tags.found.count("script") == 1  # the page's own
    assert not {"a", "img", "iframe", "link", "form", "input", "object"}.intersection(tags.found)
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for token in parser.parse(markdown(report)):
        for each in (token, *(token.children or ())):
            assert not each.type.startswith(("link", "image", "html")), each
            assert each.type != "heading_open" or each.tag in ("h2", "h3")
            assert each.type not in ("fence", "code_block", "hr"), each


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_ACTIONS)
def test_every_finding_with_hostile_names(name):
    attack = " --output=/tmp/x\n#SBATCH --wrap=id\u202e';$(id)`id`|id #"
    checked(name, lambda text: text + attack)
    checked(name, lambda text: attack + text)


@pytest.mark.slow
@examples(60)
@given(
    name=st.sampled_from(WITH_ACTIONS), text=hostile,
    place=st.sampled_from(("{0}{1}", "{1}{0}", "{1}")),
)  # fmt: skip
def test_any_name_in_any_finding(name, text, place):
    checked(name, lambda old: place.format(old, text))


@pytest.mark.slow
def test_harmless_names_keep_their_lines():
    for name in WITH_ACTIONS:
        case = CASES[name]
        same = evaluate(poisoned(case.evidence, lambda text: text))
        assert [each.actions for each in same.raised] == [
            each.actions for each in case.evaluation.raised
        ]


# -- the grammar -----------------------------------------------------------------------------------

KINDS = ("node", "nodes", "job", "pid", "size", "count", "counts", "time", "name", "option")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_kind_takes_an_attack(kind, attack):
    harmless = attack in (",", "=", "[0]", "--wrap=id", "-o")  # within a value; alone below
    for text in (attack, f"1{attack}1", f"{attack}1", f"a{attack}", f"--a{attack}"):
        word = lines.word(kind, text)
        if word is not None:
            assert harmless or kind == "option", (kind, text)
            assert arguments(f"x {word}") == ["x", word]
            assert word[0].isalnum() or kind == "option"


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("node", ["gpu01", "n-1.cluster.example", "g_1", "10.0.0.1"]),
        ("nodes", ["gpu[01-04,7],login1", "gpu01,gpu02"]),
        ("job", ["4711", "4711_3", "4711+1"]),
        ("pid", ["2", "12345"]),
        ("size", ["9G", "768M", "1.5T", "4096"]),
        ("count", ["4", "1-4"]),
        ("counts", ["4,7-9"]),
        ("time", ["02:45:00", "1-00:00:00", "90", "1-12"]),
        ("name", ["gpu:a100:4", "gpu:1g.10gb:2", "gpu", "a100@x", "debug,long"]),
    ],
)
def test_what_slurm_writes_passes(kind, good):
    for text in good:
        assert lines.word(kind, text) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [("pid", "0"), ("pid", "-1"), ("pid", "1"), ("pid", "\u0665\u0665"), ("job", "4711_[1-9]"),
     ("job", "1" * 5000), ("name", "-x"), ("node", ""), ("count", "-1"), ("size", "9g x")],
)  # fmt: skip
def test_what_is_no_value(kind, text):
    assert lines.word(kind, text) is None


@given(st.text())
def test_a_path_is_one_word(text):
    quoted = lines.path(text)
    if quoted is not None:
        assert arguments(f"less {quoted}") == ["less", text]
        assert text[0] not in "-+"


@given(st.text())
def test_prose_has_nothing_for_a_shell(text):
    said = lines.words(text)
    assert said.isprintable()
    assert not set(said) & set(";&|<>$`\\'\"#!*{}~[]")


def test_a_line_takes_checked_values_alone():
    with pytest.raises(TypeError):
        Line("scancel {}", "4711")
    with pytest.raises(TypeError):
        Action("shell", "scancel 4711")
    with pytest.raises(TypeError):
        assert Change("", None, "scancel 4711").after_line
    with pytest.raises(ValueError, match="not a valid node"):
        Word("node", "a b")
    assert Line("scancel {}", None) == ""
    assert Line("{} {}", 3, Word("size", "9G")) == "3 9G"


def test_a_deleted_line_is_no_line_to_copy():
    assert Change("--gres", Gpus("gpu:", 1), None).line == ""
    assert Change("--mem", None, 9 << 30).line == "#SBATCH --mem=9G"
    assert Change("--mem", None, "9G;id").line == ""
    assert Change("--gres", None, Gpus("gpu:$(id):", 1)).line == ""
    assert Change("--wrap", None, "id").line == ""
    assert Change("", None, Line("export A=1")).line == "export A=1"


def test_templates_are_literals():
    for path in Path(gpumon.__file__).parent.rglob("*.py"):
        source = path.read_text("utf-8")
        if "from gpumon.model.lines import" not in source:
            continue
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Line" and call.args:
                assert isinstance(call.args[0], ast.Constant), f"{path}:{call.lineno}"
