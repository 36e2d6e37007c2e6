"""Check plain arguments: integers, probabilities, names of sides, printed digits."""

import math
import operator
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Literal, SupportsIndex, TypeGuard, TypeVar, cast, get_args

Choice = TypeVar("Choice")
# of a ranking task: sums of two ranks, and of a rank and one, stay inside int64
MOST_CANDIDATES = (1 << 62) - 1


def visible(text: str) -> str:
    """Escape characters without a glyph, such as control sequences of terminals."""
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def truncate(text: str, most: int = 80) -> str:
    """Shorten a text for a message, and escape control sequences; "..." replaces its end."""
    text = visible(text[: most + 1])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shorten(value: object) -> str:
    """Format a value for a message, with 80 characters at most."""
    return truncate(repr(value[:80] if isinstance(value, str | bytes) else value))


def check_choice(name: str, value: object, choices: Iterable[Choice]) -> Choice:
    """Read an option that is one of some choices."""
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {shorten(value)}")


def check_int(name: str, value: object, least: int, below: int | None = None) -> int:
    """Read an integer of any kind, NumPy's too, in [least, below)."""
    try:
        number = operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(
            f"{name} must be an int, got {shorten(value)} of type {type(value).__name__}"
        )
    if number < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {number}")
    if below is not None and number >= below:
        limit = "2^63" if below == 1 << 63 else below
        raise ValueError(
            f"{name} must be an int of at least {least} and below {limit}, got {number}"
        )
    return number


def check_key(name: str, value: object) -> None:
    """Check a name that becomes a key in logs."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", value):
        raise ValueError(
            f"{name} must match [a-z][a-z0-9_]*, so that every logger takes it; got "
            f"{shorten(value)}"
        )


def is_int(value: object) -> TypeGuard[int]:
    """Whether a value is one integer, NumPy's too, and not a bool."""
    return isinstance(value, int | Integral) and not isinstance(value, bool)


def one_number(value: object) -> float | None:
    """Read one real number, or an array or a tensor without dimensions.

    None for other values.
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return value if isinstance(value, int | float) else float(value)


def check_function(name: str, value: object, takes: str) -> None:
    """Raise TypeError if a value cannot be called; ``takes`` describes the expected function."""
    if not callable(value):
        raise TypeError(
            f"{name} must be a function, {takes}; got {shorten(value)} of type "
            f"{type(value).__name__}"
        )


def probability_text(log10: float) -> str:
    """Write 10^log10 as ``.4f`` or with an exponent of ten."""
    if log10 == -math.inf:
        return "0"
    if log10 >= -3:
        return f"{10**log10:.4f}"
    exponent = math.floor(log10)
    digits = f"{10 ** (log10 - exponent):.3g}"
    # 9.996 rounds up
    return f"1e{exponent + 1:03d}" if digits == "10" else f"{digits}e{exponent:03d}"


EntitySide = Literal["head", "tail"]
TaskSide = Literal[EntitySide, "relation"]
ENTITY_SIDES: tuple[EntitySide, ...] = get_args(EntitySide)
TASK_SIDES: tuple[TaskSide, ...] = get_args(TaskSide)
# columns of a triple where a side is predicted: the two of the query, and the answer
QUERY_AND_ANSWER: dict[TaskSide, tuple[int, int, int]] = {
    "tail": (0, 1, 2),
    "head": (1, 2, 0),
    "relation": (0, 2, 1),
}
