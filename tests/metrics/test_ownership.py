"""Who may append to rows: a test per sentence of the docstring of `RowBuffer`; nothing is lost."""

import copy
import linecache
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torchrankmetrics
from bits import bits
from torchrankmetrics import MeanRank, MeanReciprocalRank, RankCollection, Ranks

FOLDER = Path(torchrankmetrics.__file__).parent / "metrics"
STATE = [str(FOLDER / f"{name}.py") for name in ("buffer", "state", "metric", "collection")]


def ranks(*numbers: int) -> Ranks:
    return Ranks(list(numbers), None, 9)


def test_only_the_owner_appends_and_anyone_else_appends_to_a_copy_and_owns_the_copy() -> None:
    one, other = MeanRank(), MeanRank()
    one.update(ranks(1))
    own = one.rows
    one.update(ranks(3))
    assert one.rows is own
    assert own.owner is one
    other.rows = own
    other.update(ranks(5))
    assert other.rows.owner is other
    assert (len(own), one.compute(), other.compute()) == (2, 2, 3)


def test_no_metric_owns_a_buffer_that_is_assigned_to_another_metric() -> None:
    one, other = MeanRank(), MeanReciprocalRank()
    one.update(ranks(2))
    other.rows = shared = one.rows
    assert shared.owner is None
    one.update(ranks(4))
    assert one.rows.owner is one
    assert (one.compute(), other.compute(), len(shared)) == (3, 0.5, 1)


@pytest.mark.parametrize("compute_groups", [True, False, [["MeanRank", "MeanReciprocalRank"]]])
def test_a_plain_collection_shares_rows_by_assignment(compute_groups: Any) -> None:
    plain = MetricCollection([MeanRank(), MeanReciprocalRank()], compute_groups=compute_groups)
    plain.update(ranks(1))
    plain(ranks(4))
    plain.update(ranks(4))
    assert bits(plain) == {"MeanRank": (3.0).hex(), "MeanReciprocalRank": (0.5).hex()}


def test_a_collection_owns_the_buffer_of_its_members_whose_update_raises() -> None:
    metrics = RankCollection(["mr", "mrr"])
    metrics.update(ranks(2))
    member = metrics["mr"]
    assert member.rows is metrics.rows
    assert member.rows.owner is metrics
    for call in (member.update, member):
        with pytest.raises(TorchMetricsUserError, match="'mr' is in a RankCollection"):
            call(ranks(4))
    assert metrics.compute()["mr"] == 2


def test_items_release_the_buffer_and_members_are_updated_in_copies() -> None:
    metrics = RankCollection(["mr", "mrr"])
    metrics.update(ranks(2))
    members = dict(metrics.items())
    members["mr"].update(ranks(4))
    assert (members["mr"].compute(), members["mrr"].compute()) == (3, 0.5)
    assert len(metrics.rows) == 1


def test_the_next_update_claims_the_buffer_again() -> None:
    metrics = RankCollection(["mr", "mrr"])
    members = dict(metrics.items())
    metrics.update(ranks(2))
    with pytest.raises(TorchMetricsUserError, match="'mr' is in a RankCollection"):
        members["mr"].update(ranks(4))


@pytest.mark.parametrize("call", ["update", "forward", "add_metrics"])
def test_or_it_raises_if_a_member_was_updated_or_taken_over_in_the_meantime(call: str) -> None:
    def again(metrics: RankCollection) -> None:
        getattr(metrics, call)("amri" if call == "add_metrics" else ranks(2))

    updated, taken, joined = (RankCollection(["mr", "mrr"]) for _ in range(3))
    dict(updated.items())["mrr"].update(ranks(4))
    with pytest.raises(TorchMetricsUserError, match="'mrr' was updated apart"):
        again(updated)
    plain, outer = MetricCollection([taken]), RankCollection([joined])
    for other, metrics in ((plain, taken), (outer, joined)):
        other.update(ranks(4))
        with pytest.raises(TorchMetricsUserError, match="'mr' was taken over"):
            again(metrics)
        assert other.compute()["mr"] == 4


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_have_no_owner_and_the_copy_of_a_collection_owns_its_copy(
    copied: Callable[[Any], Any],
) -> None:
    metric, metrics = MeanRank(), RankCollection(["mr"])
    for one in (metric, metrics):
        one.update(ranks(2))
        twin = copied(one)
        assert twin.rows.owner is (twin if one is metrics else None)
        twin.update(ranks(4))
        one.update(ranks(8))
        found = (bits(twin.compute()), bits(one.compute()))
        assert [list(one.values()) for one in found] == [[(3.0).hex()], [(5.0).hex()]]
    module = {"taken": RankCollection(["mr"])}
    module["plain"] = MetricCollection([module["taken"]])
    module = copied(module)
    module["plain"].update(ranks(2))  # a copy of a released buffer is released
    with pytest.raises(TorchMetricsUserError, match="taken over"):
        module["taken"].update(ranks(2))


class Interrupt:
    """Raise a KeyboardInterrupt at one line of the state.

    Python raises none when a lock is entered or left.
    """

    def __init__(self, line: int) -> None:
        self.left = line

    def __enter__(self) -> "Interrupt":
        sys.settrace(self._called)
        return self

    def __exit__(self, *about: object) -> bool:
        sys.settrace(None)
        return about[0] is KeyboardInterrupt

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in STATE else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith("with"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


SAVED = RankCollection(["mr"])
SAVED.persistent(True)
SAVED.update(ranks(6, 8))
CALLS: dict[str, Callable[[Any], Any]] = {
    "load_state_dict": lambda metric: metric.load_state_dict(SAVED.state_dict()),
    "update": lambda metric: metric.update(ranks(6, 8)),
    "forward": lambda metric: metric(ranks(6, 8)),
    "merge_state": lambda metric: metric.merge_state(
        SAVED if isinstance(metric, RankCollection) else {"rows": SAVED.rows}
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("storage", ["ranks", "counts"])
@pytest.mark.parametrize("make", [MeanRank, lambda **kw: RankCollection(["mr", "count"], **kw)])
def test_an_interrupt_anywhere_leaves_the_rows_before_or_after_the_call(
    make: Callable[..., Any], storage: str, call: str
) -> None:
    def fresh() -> Any:
        metric = make(storage=storage)
        metric.update(ranks(2))
        metric.compute()
        return metric

    done = fresh()
    CALLS[call](done)
    allowed = [bits(fresh()), bits(done)]
    assert allowed[0] != allowed[1]
    seen = []
    line = 0
    while True:
        metric = fresh()
        line += 1
        with Interrupt(line) as interrupt:
            CALLS[call](metric)
        seen.append(bits(metric))
        assert seen[-1] in allowed, line
        if interrupt.left > 0:  # all lines were tried
            break
    assert line > 10
    assert seen[0] == allowed[0]
    assert seen[-1] == allowed[1]
