"""Modules that are imported when they are used."""

from __future__ import annotations

import json
import subprocess
import sys

from gpumon.tui.postponed import MODULES, postponing
from tests.e2e.program import environment
from tests.support.waiting import HANGS_S


def in_a_new_interpreter(tmp_path, code):
    """What it prints last, as JSON; the tests' own has imported all of Textual."""
    (tmp_path / "code.py").write_text(code)
    done = subprocess.run(
        [sys.executable, tmp_path / "code.py"], env=environment(LC_ALL="C.UTF-8"),
        capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_all_of_them_work_when_they_are_used(tmp_path):
    loaded_then, loaded_now = in_a_new_interpreter(
        tmp_path,
        "import json, sys\n"
        "import gpumon.tui.app, textual.app, textual.notifications, textual.suggestions\n"
        "from textual.css import _styles_builder, _style_properties\n"
        "from textual.style import Style\n"
        f"names = {MODULES!r}\n"
        "then = [name for name in names if name in sys.modules]\n"
        "assert textual.app.user_downloads_path().name\n"
        "assert textual.app.mimetypes.guess_type('a.svg')[0] == 'image/svg+xml'\n"
        "assert isinstance(textual.app.uuid.uuid4(), textual.app.uuid.UUID)\n"
        "assert textual.notifications.uuid4() != textual.notifications.uuid4()\n"
        "import urllib.parse\n"
        "assert urllib.parse.urlsplit('http://[::1]:80/').port == 80\n"
        "assert textual.suggestions.get_suggestion('colour', ['color']) == 'color'\n"
        "assert Style.from_meta({'a': 1}).meta == {'a': 1}\n"
        "assert _styles_builder.color_property_help_text('color', context='css')\n"
        "assert textual.app.CommandPalette(placeholder='x')\n"
        "assert textual.app.App().tree\n"
        "from textual.design import ColorSystem, show_design\n"
        "assert show_design(ColorSystem('red'), ColorSystem('red')).columns\n"
        "print(json.dumps([then, [name for name in names if name in sys.modules]]))\n",
    )
    assert loaded_then == []
    assert loaded_now == list(MODULES)


def test_the_palette_of_commands_opens_and_acts(tmp_path):
    opened, acted = in_a_new_interpreter(
        tmp_path,
        "import asyncio, json\n"
        "from gpumon.tui.dialogs.palette import open_palette\n"
        "from gpumon.tui.keys import Key\n"
        "from textual.app import App\n"
        "acted = []\n"
        "async def act(action):\n"
        "    acted.append(action)\n"
        "async def run():\n"
        "    app = App()\n"
        "    async with app.run_test() as pilot:\n"
        "        open_palette(app, [Key('z', 'zap', 'z', 'Zap', 'zap it')], act)\n"
        "        await pilot.pause()\n"
        "        opened = type(app.screen).__name__\n"
        "        while not acted:\n"
        "            await pilot.press('enter')\n"
        "            await pilot.pause(0.05)\n"
        "        print(json.dumps([opened, acted]))\n"
        "asyncio.run(run())\n",
    )
    assert (opened, acted) == ("CommandPalette", ["zap"])


def test_what_this_python_has_itself_is_taken_from_it(tmp_path):
    same, loaded = in_a_new_interpreter(
        tmp_path,
        "import json, sys, typing\n"
        "from gpumon.tui.postponed import postponing\n"
        "with postponing():\n"
        "    from typing_extensions import Final\n"
        "    assert not hasattr(sys.modules['typing_extensions'], '__file__')\n"
        "    from typing_extensions import Doc\n"  # of no Python's own typing
        "assert Doc.__module__ == 'typing_extensions'\n"
        "print(json.dumps([Final is typing.Final, 'typing_extensions' in sys.modules]))\n",
    )
    assert same
    assert loaded


def test_another_thread_gets_the_module_itself(tmp_path):
    found = in_a_new_interpreter(
        tmp_path,
        "import json, sys, threading\n"
        "from gpumon.tui.postponed import postponing\n"
        "found = []\n"
        "def other():\n"
        "    from uuid import UUID\n"
        "    found.append(isinstance(UUID, type))\n"
        "with postponing():\n"
        "    import mimetypes, uuid\n"
        "    thread = threading.Thread(target=other)\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "    found.append('mimetypes' in sys.modules)\n"
        "found.append('mimetypes' in sys.modules)\n"
        "found.append(isinstance(uuid.UUID, type))\n"
        "print(json.dumps(found))\n",
    )
    assert found == [True, True, False, True]


def test_what_is_imported_already_stays():
    before = {name: sys.modules[name] for name in MODULES if name in sys.modules}
    before["json"] = json
    with postponing():
        assert {name: sys.modules[name] for name in before} == before
    assert {name: sys.modules[name] for name in before} == before
