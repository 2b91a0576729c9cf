"""Plain data: `@dataclass(frozen=True)` that is made quickly.

mypy refuses any change to it. The check of `dataclasses` at run time would cost more than making
the object, four times for a small one and nine for a large one, of which a report over thousands of
jobs makes millions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import dataclass as _checked

    def dataclass(*, frozen: bool) -> Callable[[type], type]:
        return _checked(unsafe_hash=frozen)
