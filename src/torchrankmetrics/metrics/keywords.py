"""What a call of ``update`` that does not fit is told: the public class, and the keyword that was meant."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torchrankmetrics.checks import check_choice
from torchrankmetrics.errors import hint_of, warn

_PREDS = "the scores (B, N), a Ranks or a RankTable"
Update = TypeVar("Update", bound=Callable[..., None])
Breakdown = TypeVar("Breakdown", bound=Callable[..., Any])


def with_host_keywords(update: Update) -> Update:
    """Let errors of a call name the public class, and take ``scores=``, as ``preds`` was called up to 0.1.

    The signature stays that of ``update``, for torchmetrics filters keywords by it. A call that fits costs nothing.
    """
    signature = inspect.signature(update)

    @functools.wraps(update)
    def called(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            return update(self, *args, **kwargs)
        except TypeError:
            old = "scores" in kwargs and "preds" not in kwargs and not args
            renamed = {"preds" if key == "scores" else key: value for key, value in kwargs.items()} if old else kwargs
            try:
                signature.bind(self, *args, **renamed)
            except TypeError as misfit:
                known = list(signature.parameters)[1:]
                hint = hint_of(kwargs, known) or f"it takes {', '.join(known)}, of which preds are {_PREDS}"
                raise TypeError(f"{type(self).__name__}.{update.__name__}() {misfit}; {hint}") from None
            if not old:
                raise
        warn(
            f"{type(self).__name__}.{update.__name__}(scores=...) is deprecated and goes with 0.3: the argument is "
            "called preds, as in all of torchmetrics",
            FutureWarning,
        )
        return update(self, *args, **renamed)

    return called  # type: ignore[return-value]


def without_by(breakdown: Breakdown) -> Breakdown:
    """Let ``breakdown`` take ``by="group"``, by position or by name: an option with that one value up to 0.1."""

    @functools.wraps(breakdown)
    def called(self: Any, *args: Any, by: str | None = None, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str) and args[0] == "group":
            by, args = args[0], args[1:]
        if by is not None:
            check_choice("by", by, ("group",))
            warn("breakdown(by=...) is deprecated and goes with 0.3: a breakdown is by group", FutureWarning)
        return breakdown(self, *args, **kwargs)

    return called  # type: ignore[return-value]
