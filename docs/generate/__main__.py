"""Writes every page that differs."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate import grafana, man, pages

DOCS = Path(__file__).parents[1]

PAGES = {
    "commands.md": pages.commands_page,
    "keys.md": pages.keys_page,
    "settings.md": pages.settings_page,
    "findings.md": pages.findings_page,
    "report.md": pages.report_page,
    "gpumon.1": man.man_page,
    "grafana/gpumon.json": grafana.dashboard,
}


def main() -> int:
    """Write every page that differs, and name it."""
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
