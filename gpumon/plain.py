"""Plain data: `@dataclass(frozen=True)` that is made, and made anew with changes, quickly.

mypy refuses any change to it. The check of `dataclasses` at run time would cost more than making
the object, four times for a small one and nine for a large one, of which a report over thousands of
jobs makes millions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    from dataclasses import dataclass as _checked

    def dataclass(*, frozen: bool) -> Callable[[type], type]:
        return _checked(unsafe_hash=frozen)

    def replace(of: object, /, **changes: object) -> object:
        """The same as that of `dataclasses`, for plain data that checks nothing when it is made.

        What `analysis.once` keeps with an object is not its copy's.
        """
        values = of.__dict__
        made = object.__new__(type(of))
        made.__dict__ = {name: values[name] for name in of.__dataclass_fields__} | changes
        return made
