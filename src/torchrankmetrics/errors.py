"""The base class of errors and the warning category of the package."""

import os
import sys
import warnings
from typing import Any

from torchrankmetrics.validation import visible

_LIBRARY = os.path.dirname(__file__) + os.sep
# between the library and its caller: frames of ``eager``, and of the host's ``compute``
_HOSTS = tuple(
    map(
        os.path.normpath,
        ("torch/_dynamo/eval_frame.py", "torchmetrics/metric.py", "torchmetrics/collections.py"),
    )
)


class RankMetricError(ValueError):
    """Base class of the exceptions that the package defines; every one is a ``ValueError``.

    They are raised for values that cannot be computed from valid arguments: a view without numbers
    of candidates (``UnknownCandidatesError``), null moments that no provider has
    (``ExpectationUnavailableError``), and a file that needs more memory than ``max_bytes``
    (``TooLargeError``). Invalid arguments raise plain ``ValueError`` and ``TypeError``.

    >>> from torchrankmetrics import RankCollection, RankMetricError, Ranks
    >>> collection = RankCollection(["mrr", "adjusted_mrr"])
    >>> collection.update(Ranks([1, 3], None, None))
    >>> try:
    ...     values = collection.compute()
    ... except RankMetricError:
    ...     print("the numbers of candidates are unknown")
    ...
    the numbers of candidates are unknown
    """


class RankMetricWarning(UserWarning):
    """Warning that a number is undefined or based on damaged input.

    Causes are NaN scores, repeats that differ, sample ids that repeat within one update, look-ups
    of known triples without the target, masks of -inf, ties that decide, evaluations without a
    task, and a Numba that cannot be used. If a process group is initialized, only its first process
    warns.

    >>> import warnings
    >>> from torchrankmetrics import RankMetricWarning, evaluate
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", RankMetricWarning)
    ...     evaluate([], num_candidates=9, metrics=["mrr"])
    ...
    {'mrr': nan}
    """


def missing_extra(user: str, package: str, extra: str) -> ImportError:
    """Return the error for a package that is not installed; it names the extra that brings it."""
    return ImportError(f"{user} needs {package}: pip install 'torchrankmetrics[{extra}]'")


def warn(message: str, category: type[Warning] = RankMetricWarning) -> None:
    """Warn with the stack level of the library's caller, on the first process of the group."""
    # without this import there is no process group
    distributed: Any = sys.modules.get("torch.distributed")
    if (
        distributed
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_rank() > 0
    ):
        return
    level = 3
    frame = sys._getframe(2)
    while (name := frame.f_code.co_filename).startswith(_LIBRARY) or name.endswith(_HOSTS):
        if frame.f_back is None:
            break
        level = level + 1
        frame = frame.f_back
    warnings.warn(visible(message), category, stacklevel=level)
