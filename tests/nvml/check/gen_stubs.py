"""Write src/stubs.inc: the NVML symbols found in the given files that nothing implements.

usage: make stubs SYMBOL_FILES="nvml.h pynvml.py"
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
#: a function definition, or one made by a macro whose first argument is its name
DEFINED = re.compile(r"^(?:API (?:int|const char \*)\s*|[A-Z_0-9]+\()(nvml\w+)", re.MULTILINE)
#: a declaration in nvml.h, or a look-up in the Python binding
NAMED = re.compile(r"DECLDIR\s+(nvml\w+)\s*\(|_nvmlGetFunctionPointer\(\"(nvml\w+)\"\)")


def main() -> None:
    implemented = {
        name for file in SRC.glob("api_*.c") for name in DEFINED.findall(file.read_text())
    }
    wanted = {
        first or second
        for path in sys.argv[1:]
        for first, second in NAMED.findall(Path(path).read_text())
    }
    lines = [f"STUB({name})\n" for name in sorted(wanted - implemented)]
    (SRC / "stubs.inc").write_text("/* written by check/gen_stubs.py */\n" + "".join(lines))
    print(f"{len(implemented)} implemented, {len(lines)} stubs")


if __name__ == "__main__":
    main()
