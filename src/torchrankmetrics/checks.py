"""Options that are read the same way everywhere: one of some choices, an integer, a number."""

import operator
from collections.abc import Iterable
from numbers import Integral, Real
from typing import SupportsIndex, TypeGuard, TypeVar, cast

Choice = TypeVar("Choice")


def shortened(text: str, most: int = 80) -> str:
    """Text for a message: "..." stands for the end of a long one."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object) -> str:
    """Value of a user or a file for a message, 80 characters at most.

    >>> shown("a" * 10**6) == "'" + "a" * 76 + "..."
    True
    """
    return shortened(repr(value[:80] if isinstance(value, str | bytes) else value))


def check_choice(name: str, value: object, choices: Iterable[Choice]) -> Choice:
    """Read an option that is one of some choices.

    Raises:
        ValueError: if it is none of them.
    """
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {shown(value)}")


def check_int(name: str, value: object, least: int, below: int | None = None) -> int:
    """Read an integer of any kind, NumPy's too, in [least, below).

    Raises:
        TypeError: if it is no integer; a bool is none.
        ValueError: if it is out of range.
    """
    try:
        number = operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {shown(value)} of type {type(value).__name__}")
    if number < least or (below is not None and number >= below):
        limit = "" if below is None else f" and below {below}"
        raise ValueError(f"{name} must be an int of at least {least}{limit}, got {number}")
    return number


def is_int(value: object) -> TypeGuard[int]:
    """Whether a value is one integer, NumPy's too, and no bool."""
    return isinstance(value, int | Integral) and not isinstance(value, bool)


def one_number(value: object) -> float | None:
    """Read one real number, Python's or NumPy's, or an array or a tensor without dimensions; None if it is none.

    Bools are none. Python's numbers stay what they are.

    >>> import numpy as np
    >>> one_number(np.float32(0.5)), one_number(np.array(2)), one_number(3), one_number("3"), one_number([3])
    (0.5, 2, 3, None, None)
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return value if isinstance(value, int | float) else float(value)


def check_function(name: str, value: object, takes: str) -> None:
    """Refuse what cannot be called; ``takes`` says what is expected."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, {takes}; got {shown(value)} of type {type(value).__name__}")
