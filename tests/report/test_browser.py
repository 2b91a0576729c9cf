"""The HTML report in a real browser: it loads nothing, fits the screen, and can be read."""

import itertools
import re
from dataclasses import replace
from math import sin

import pytest

from gpumon import demos
from gpumon.model.text import clean
from gpumon.report.model import Attempt, Spread, Tasks
from gpumon.report.render.html import html_page
from gpumon.services.reports import make_reports
from gpumon.services.request import Request
from tests.support.browser import Browser

from .made import GIB, HOSTILE, events, finding, happened, job, report, row
from .test_forms import hostile

pytestmark = pytest.mark.slow
WIDTHS, SCHEMES = (400, 800, 1600), ("light", "dark")

#: of all text that is seen: its contrast with what is behind it, where that is below 4.5
LOW_CONTRAST = """
(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (rgb(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    const colours = [getComputedStyle(node).color, ground(node)];
    const [high, low] = colours.map(each => luminance(rgb(each))).sort((a, b) => b - a);
    const contrast = (high + .05) / (low + .05);
    if (contrast < 4.5) found.push([contrast, ...colours, walk.currentNode.textContent]);
  }
  return found;
})()
"""
#: what is wider than the page and does not scroll by itself
OVERFLOW = """
[...document.querySelectorAll("*")].filter(each => !each.closest(".wide > *")
  && each.getBoundingClientRect().right > WIDTH + 1).map(each => each.outerHTML)
"""


def waves(index):
    return tuple(None if n < 9 else 50 + 50 * sin(n * index / 9) for n in range(160))


def of_all_kinds():
    """Whatever a report may hold."""
    return report(
        tasks=Tasks(
            {"COMPLETED": 118, "TIMEOUT": 2}, 120,
            (Spread("memory", "B", 2.0 * GIB, 3.1 * GIB, 4.0 * GIB, 21.0 * GIB, 32.0 * GIB,
                    ("4711_93",)),),
        ),
        attempts=(Attempt("1", 0.0, 11400.0, "PREEMPTED"), Attempt("2", 20000.0, None)),
        segments=(Attempt("bs=16", 1_795_203_000.0, 1_795_206_000.0),), happenings=events(),
    )  # fmt: skip


def of_the_demo():
    (made,) = make_reports(Request(runs=[demos.path("finetune")])).reports
    return made


PAGES = {
    "sketch": lambda: [report()],
    "all-kinds": lambda: [of_all_kinds()],
    "hostile": lambda: [hostile()],
    "demo": lambda: [of_the_demo()],
    "events": lambda: [report(happenings=events())],
    "many-gpus": lambda: [
        report(devices=[row(f"gpu{n:02d}", m, busy_over_time=waves(n + m))
                        for n in range(8) for m in range(8)],
               happenings=[happened("gpu02:5"), happened("gpu07:7", text="31", level="warning")])
    ],
    "pending": lambda: [report(job=job(state="PENDING"), devices=(), findings=(), elapsed_s=None)],
    "nothing-found": lambda: [report(findings=(), recommendations=(), waste_gpu_hours=0.0)],
    "several": lambda: [report(), report(job=job(id="4712")), hostile()],
}  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture
def page(tmp_path):
    def written(body):
        path = tmp_path / "report.html"
        path.write_text(body, encoding="utf-8")
        return path

    return written


def too_wide(browser, width):
    return browser.value(OVERFLOW.replace("WIDTH", str(width)))


@pytest.mark.parametrize("name", PAGES)
def test_every_report_fits_is_readable_and_loads_nothing(name, browser, page):
    path = page(html_page(PAGES[name]()))
    for width, scheme in itertools.product(WIDTHS, SCHEMES):
        browser.open(path, width, scheme=scheme)
        assert browser.requests() == [], (width, scheme)
        assert too_wide(browser, width) == [], (width, scheme)
        assert browser.value(LOW_CONTRAST) == [], (width, scheme)
    assert browser.printed().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["sketch", "demo", "events", "many-gpus"])
def test_a_report_of_one_job_is_printed_on_two_pages(name, browser, page):
    browser.open(page(html_page(PAGES[name]())), 800, scheme="dark")
    pages = len(re.findall(rb"/Type\s*/Page\b", browser.printed()))
    assert pages <= 2


def test_hostile_names_are_text(browser, page):
    browser.open(page(html_page([hostile()])), 800)
    shown = browser.value("document.body.textContent")
    assert clean(HOSTILE, 40) in shown
    assert browser.value("document.querySelectorAll('script, a, img, iframe').length") == 1


def test_events_stand_at_their_times_on_their_charts(browser, page):
    browser.open(page(html_page([report(happenings=events())])), 1600)
    flags = """[...document.querySelectorAll("figure")].map(each => {
      const plot = each.querySelector("svg").getBoundingClientRect();
      return [...each.querySelectorAll(".flags span")].map(flag => {
        const {left, right} = flag.getBoundingClientRect();
        return [flag.textContent, Math.round(1000 * ((left + right) / 2 - plot.left) / plot.width)];
      });
    })"""
    first, second, third, _ = browser.value(flags)
    places = {name: round(1000 * at / 8049) for name, at in [("1", 600), ("5", 6000)]}
    for found in (first, second, third):  # marks are about all GPUs
        assert {name: at for name, at in found if name in places} == pytest.approx(places, abs=2)
    assert [name for name, _ in first] == ["1", "2", "5", "6", "7"]
    assert [name for name, _ in second] == ["1", "3–4", "5"]  # which are too near to each other
    listed = browser.value("document.querySelector('.events').innerText").split("\n")
    lines = [line for line in listed if line]
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4", "5", "6", "7", "·"]
    assert lines[1].endswith("gpu01:0 Xid 31 (57 times)")
    assert lines[-1] == "· during the run gpu02:2 2 uncorrectable memory errors"
    pin = "document.querySelectorAll('figure')[1].querySelectorAll('.flags span')[1]"
    assert "fell off the bus" in browser.value(f"{pin}.title")
    width = browser.value("document.querySelector('.flags').getBoundingClientRect().width")
    assert width == browser.value(
        "document.querySelector('.plot svg').getBoundingClientRect().width"
    )


@pytest.mark.parametrize("leak", [
    '<img src="http://192.0.2.1/x.png">', '<link rel="stylesheet" href="http://192.0.2.1/x.css">',
    "<script>fetch('http://192.0.2.1/')</script>", '<p style="background: url(http://192.0.2.1/)">',
    '<img src="file:///etc/hostname">',
])  # fmt: skip
@pytest.mark.parametrize("refused", [True, False], ids=["refused", "allowed"])
def test_a_request_would_be_seen(leak, refused, browser, page):
    body = html_page([report()]).replace("<h2>", f"{leak}<h2>", 1)
    if not refused:
        body = re.sub("<meta http-equiv[^>]*>", "", body)
    browser.open(page(body), 800)
    assert browser.requests()


def test_what_is_too_wide_or_too_pale_would_be_seen(browser, page):
    body = html_page([report()])
    wide = '<div style="width: 500px; color: #aaa; background: #fff">x</div>'
    browser.open(page(body.replace("<h2>", f"{wide}<h2>", 1)), 400)
    assert too_wide(browser, 400)
    assert len(browser.value(LOW_CONTRAST)) == 1


def test_the_button_copies_the_lines_and_is_hidden_where_it_cannot(browser, page):
    made = report()
    path = page(html_page([made]))
    browser.open(path, 800, scripts=False)
    assert not browser.value("document.querySelector('.lines button').checkVisibility()")
    browser.open(path, 800)
    button = "document.querySelector('.lines button')"
    browser.value(f"{button}.click()")
    assert browser.value(f"{button}.textContent") == "Copied"
    lines = [each.change.line for each in made.recommendations]
    assert browser.value("String(getSelection())").strip().splitlines() == lines


def test_findings_are_as_loud_as_they_are_severe(browser, page):
    levels = ("critical", "warning", "info")
    found = tuple(finding(level=level, title=level) for level in levels)
    browser.open(page(html_page([replace(report(), findings=found)])), 800)
    style = "getComputedStyle(document.querySelector('.{}')).{}"
    edges = [browser.value(style.format(level, "borderLeftWidth")) for level in levels]
    grounds = [browser.value(style.format(level, "backgroundColor")) for level in levels]
    assert edges == ["8px", "4px", "4px"]
    assert len(set(grounds)) == 3
    sizes = [browser.value(style.format(f"{each} b", "fontSize")) for each in levels]
    assert float(sizes[0][:-2]) > float(sizes[1][:-2])
