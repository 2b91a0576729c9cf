"""A finding in sentences: what was measured, and why it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.analysis.finding import Finding


def sentences(finding: Finding) -> tuple[str, str]:
    """(what was found, on what it rests and why it matters), as sentences.

    Why a mere information matters stands in its details.
    """
    title, *rest = parts(finding)
    return title, " ".join([*rest, *([_sentence(finding.doubt)] if finding.doubt else [])])


def parts(finding: Finding) -> list[str]:
    """What was found, then, as far as there is more to say, on what it rests and why it matters."""
    from gpumon.analysis.rules.catalogue import why  # not before a screen's first paint

    title = finding.title
    evidence = finding.evidence if finding.adds is None else finding.adds
    if finding.goes_on:
        title, evidence = title + evidence, ""
    matters = "" if finding.level == "info" else why(finding.id)
    return [_sentence(title), *(_sentence(each) for each in (evidence, matters) if each)]


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name, and a full stop."""
    text = capital(text.strip())
    return text if text.endswith((".", "?", "!", ":")) else f"{text}."


def capital(text: str) -> str:
    """With a capital, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
