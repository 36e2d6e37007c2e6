"""The benefit of each cache of a collection: `compute` without it.

python -m benchmarks.memos [--full] [--threads N] [--json PATH]

CPU time of `compute` in later epochs over the same tasks. One cache at a time is disabled.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.steps import evaluated
from benchmarks.timing import arguments, report, together

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.theory.expectation.exact import ExactExpectation
from torchrankmetrics.theory.sample import RankSample


def main() -> None:
    given = arguments(__doc__.splitlines()[0])
    report(rows(given.full), given.json)


class Forgets(dict[Any, Any]):
    """A memo that has nothing when it is asked, and gives what was written last."""

    def __contains__(self, key: object) -> bool:
        return False

    def get(self, key: Any, default: Any = None) -> Any:
        """Nothing."""
        return default


@contextlib.contextmanager
def without(owner: type, name: str) -> Iterator[None]:
    before = owner.__init__

    def begin(self: Any, *args: Any, **options: Any) -> None:
        before(self, *args, **options)
        setattr(self, name, Forgets())

    owner.__init__ = begin
    try:
        yield
    finally:
        owner.__init__ = before


@contextlib.contextmanager
def without_candidate_counts() -> Iterator[None]:
    before = RankSample.__dict__["candidate_counts"]
    RankSample.candidate_counts = property(before.func)
    try:
        yield
    finally:
        RankSample.candidate_counts = before


def rows(full: bool) -> list[dict[str, Any]]:
    number = 40_932 if full else 2_000
    collection, _ = evaluated(number, ExactExpectation())
    forgetful, _ = evaluated(number, ExactExpectation(cache_size=0))

    def compute(leaving_out: Callable[[], Any] = contextlib.nullcontext, asked: Any = collection) -> None:
        asked._leader.rows.extend([])  # as after another update
        with leaving_out():
            asked.compute()

    def apart() -> None:
        for member in collection._members():
            collection._leader.rows.extend([])
            member.measure.value(collection._synced_analysis())

    return together(
        f"{len(collection.compute())} values, {number} tasks",
        ("all memos", "ours", compute),
        ("no analysis of the store", "ours", apart),
        ("no samples of an analysis", "ours", lambda: compute(lambda: without(Analysis, "_samples"))),
        ("no candidate counts", "ours", lambda: compute(without_candidate_counts)),
        ("no answers of the provider", "ours", lambda: compute(asked=forgetful)),
        ("no histograms", "ours", lambda: compute(lambda: without(RankSample, "_histograms"))),
        ("no base values", "ours", lambda: compute(lambda: without(Analysis, "base_values"))),
        clock=time.process_time,
    )


if __name__ == "__main__":
    main()
