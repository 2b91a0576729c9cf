"""Compare the parameters of every implemented function with nvml.h.

usage: gcc -E src/api_*.c | python3 signatures.py nvml.h

Compared are the number of parameters, their pointer depth and the width of their integers.
"""

from __future__ import annotations

import re
import sys

WIDTH = {
    "int": 4,
    "uint": 4,
    "unsigned int": 4,
    "u64": 8,
    "unsigned long long": 8,
    "unsigned long": 8,
    "char": 1,
}
#: NVML's opaque handles are pointers: (name here or in nvml.h) -> depth that the name hides
HANDLES = {"Handle": 1, "nvmlDevice_t": 1, "nvmlEventSet_t": 1, "nvmlGpmSample_t": 1}

Parameter = tuple[str, int]  # type without pointers, pointer depth


def parameters(text: str) -> list[Parameter]:
    """The parameters of a C parameter list."""
    text = re.sub(r"/\*.*?\*/|\bconst\b|\bstruct\b", " ", text, flags=re.DOTALL).strip()
    if text in ("", "void"):
        return []
    found = []
    for parameter in text.split(","):
        words = parameter.replace("*", " ").split()
        kind = " ".join(words[:-1]) if len(words) > 1 else words[0]
        found.append((kind, parameter.count("*") + HANDLES.get(kind, 0)))
    return found


def complaint(ours: list[Parameter], theirs: list[Parameter], enums: set[str]) -> str:
    """What differs, or nothing."""
    if len(ours) != len(theirs):
        return f"{len(ours)} parameters, nvml.h has {len(theirs)}"
    for number, ((kind, depth), (their_kind, their_depth)) in enumerate(zip(ours, theirs), 1):
        if depth != their_depth:
            return f"parameter {number}: pointer depth {depth}, nvml.h has {their_depth}"
        width = WIDTH.get(kind)
        their_width = 4 if their_kind in enums else WIDTH.get(their_kind)
        if width and their_width and width != their_width:
            return f"parameter {number}: {width} bytes, nvml.h has {their_width}"
    return ""


def main() -> int:
    with open(sys.argv[1]) as file:
        header = file.read()
    declared = {
        name: parameters(text)
        for name, text in re.findall(r"DECLDIR\s+(nvml\w+)\s*\(([^;]*?)\)\s*;", header, re.DOTALL)
    }
    enums = set(re.findall(r"typedef enum.*?\}\s*(nvml\w+)\s*;", header, re.DOTALL))
    source = re.sub(r"^#.*$", "", sys.stdin.read(), flags=re.MULTILINE)
    implemented = re.findall(r"\bint (nvml\w+)\s*\(([^)]*)\)\s*\{", source)
    bad = newer = 0
    for name, text in implemented:
        ours = parameters(text)
        if name not in declared:
            newer += 1
        elif problem := complaint(ours, declared[name], enums) if ours else "":
            print(f"{name}: {problem}")
            bad += 1
    print(f"{len(implemented)} functions, {bad} differ, {newer} not in this nvml.h")
    return 1 if bad or not implemented else 0


if __name__ == "__main__":
    sys.exit(main())
