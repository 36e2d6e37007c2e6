"""Rows that leave a metric and come back, in checkpoints and merges: once, and only what an update would have kept."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist, nn

import torchrankmetrics as trm
from bits import bits
from sharding import EMPTY, HEAD, MORE, TAIL, collection, of_one_process, update
from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankMetricWarning, Ranks, RankTable
from torchrankmetrics.table.blocks import TaskFacts, rows_of
from torchrankmetrics.table.columns import Columns
from worker_pool import WorkerPool

ROWS = rows_of(Ranks([1, 4], None, 9), TaskFacts("head"))
OLD = Path(__file__).parents[1] / "data"  # make_old_files.py wrote them there, with the sources of 0.1.0


def changed(column: str, value: int) -> torch.Tensor:
    rows = ROWS.clone()
    getattr(Columns(rows), column)[1] = value
    return rows


BAD_ROWS = {
    "dtype": (ROWS.int(), "int64"),
    "float": (ROWS.double(), "int64"),
    "width": (ROWS[:, :7], r"\(n, 10\), got \(2, 7\)"),
    "shape": (ROWS[0], r"\(n, 10\), got \(10,\)"),
    "rank 0": (changed("optimistic", 0), "ranks must"),
    "rank above N": (changed("pessimistic", 10), "ranks must"),
    "order": (changed("optimistic", 5), "optimistic"),
    "fault": (changed("side_and_flags", -1), "reported at compute"),
    "weight": (changed("weight_bits", -1), "weight must be finite"),
    "gain": (changed("gain_bits", -1), "gain must be finite"),
    "count": (changed("count", 0), "count must be at least 1"),
    "flags": (changed("side_and_flags", 1 << 20), "known flags in side_and_flags, got 0x40000"),
    "no tensor": ("rows", "int64"),
}


@pytest.mark.parametrize("make", [MeanRank, lambda: RankCollection(["mr", "amri"])], ids=["metric", "collection"])
@pytest.mark.parametrize(("rows", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_no_update_keeps_are_rejected_before_anything_changes(make: Any, rows: Any, message: str) -> None:
    metric = make()
    metric.update(Ranks([2], None, 9))
    before = bits(metric)
    with pytest.raises(RuntimeError, match=message):
        metric.load_state_dict({"rows": rows})
    if isinstance(metric, MeanRank):
        with pytest.raises((TypeError, ValueError, IndexError), match=message):
            metric.merge_state({"rows": rows})
    assert bits(metric) == before
    nn.ModuleDict({"metric": metric}).load_state_dict({"metric.rows": [ROWS, ROWS[:1]]})
    assert next(iter(bits(metric).values())) == float(2).hex()


@pytest.mark.filterwarnings("ignore:relevant items of one query")
@pytest.mark.parametrize("make", [trm.AveragePrecision, lambda: RankCollection(["mr", "ap"])])
@pytest.mark.parametrize("query", [-5, -6])
def test_queries_that_no_update_names_are_rejected_where_they_are_counted(make: Any, query: int) -> None:
    """A negative query is a hash of the answers of one row of scores, of which none may be missing."""
    metric = make()
    with pytest.raises(RuntimeError, match="1 queries lack answers that came in the same update"):
        metric.load_state_dict({"rows": changed("query", query)})
    assert not metric.state_dict()
    metric.persistent(True)
    metric.update(torch.rand(3, 9), torch.tensor([[0, 0, 1, 2], [1, 2, 4, 5]]))
    again = make()
    again.load_state_dict(metric.state_dict())
    assert bits(again) == bits(metric)


@pytest.mark.parametrize(
    ("metric", "incoming", "message"),
    [
        (HitsAtK(1), HitsAtK(3), "same metric, 'hits_at_1'; got 'hits_at_3'"),
        (MeanRank(), MeanRank(view="z_score"), "same metric, 'mr'; got 'z_mr'"),
        (MeanRank(), MeanRank(average="macro"), "same metric, 'mr'; got 'macro_mr'"),
        (MeanRank(side="tail"), {"rows": rows_of(Ranks([1], None, 9), TaskFacts())}, "side must be passed"),
        (MeanRank(average="macro"), {"rows": [ROWS]}, "group must be passed"),
        (RankCollection(["tail_mr"]), RankCollection(["mr"]), "side must be passed"),
        (RankCollection([MeanRank(average="macro")]), RankCollection(["mr"]), "group must be passed"),
    ],
)
def test_merge_state_raises_where_update_raises(metric: Any, incoming: Any, message: str) -> None:
    if not isinstance(incoming, dict):
        incoming.update(Ranks([1], None, 9), **({"group": 0} if getattr(incoming, "average", "") == "macro" else {}))
    with pytest.raises(ValueError, match=message):
        metric.merge_state(incoming)
    assert not (metric if isinstance(metric, MeanRank | HitsAtK) else metric._first).rows


def job_restore(rank: int, storage: str) -> dict[str, dict[str, str]]:
    metrics, file = collection(storage), io.BytesIO()
    update(metrics, [HEAD, TAIL][rank])
    metrics.persistent(True)
    torch.save(nn.ModuleDict({"metric": metrics}).state_dict(), file)
    states: list[Any] = [None, None]
    dist.all_gather_object(states, file.getvalue())
    found = {}
    for name, state in {"own": states[rank], "first": states[0], "second": states[1]}.items():
        back = collection(storage)
        nn.ModuleDict({"metric": back}).load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
        found[name] = bits(back)
        update(back, [MORE, EMPTY][rank])
        found[name + " and more"] = bits(back)
    single = MeanReciprocalRank()
    single.load_state_dict({"rows": [ROWS]})
    found["single"] = bits(single)
    return found


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_rows_of_a_checkpoint_come_back_once_on_several_processes(pool: WorkerPool, storage: str) -> None:
    """Every process loads: its own checkpoint, that of the first, that of the second, and one that nobody signed."""
    alone = MeanReciprocalRank()
    alone.load_state_dict({"rows": ROWS})
    for found in pool.run(job_restore, [(0, storage), (1, storage)]):
        for name, batches in {"own": [HEAD, TAIL], "first": [HEAD], "second": [TAIL]}.items():
            assert found[name] == of_one_process(batches)
            assert found[name + " and more"] == of_one_process([*batches, MORE])
        assert found["single"] == bits(alone)


@pytest.mark.filterwarnings("ignore:relevant items of one query")
@pytest.mark.parametrize(("version", "shape", "nan"), [("0_1", (42, 8), 42), ("0_2", (67, 9), 67)])
def test_checkpoints_and_files_of_older_versions_load_with_their_values(
    version: str, shape: tuple[int, int], nan: int
) -> None:
    """Rows had eight columns in 0.1 and nine in 0.2."""
    known = json.loads((OLD / f"values_{version}.json").read_text())
    names = [key.removeprefix("val/") for key in known["collection"]]
    state = torch.load(OLD / f"checkpoint_{version}.pt", weights_only=True)
    assert state["collection.rows"].shape == shape
    single = MeanReciprocalRank(view="z_score", average="macro")
    metrics: Any = nn.ModuleDict({"collection": RankCollection(names, prefix="val/"), "single": single})
    metrics.load_state_dict(state)
    for metric, values in ((metrics["collection"], known["collection"]), (single, {"": known["single"]})):
        with pytest.warns(RankMetricWarning, match=f"2 of {nan} ranking tasks have NaN scores"):
            found = bits(metric)
        assert {key: float.fromhex(value) for key, value in found.items()} == pytest.approx(values, rel=1e-12)
        metric.update(Ranks([1], None, 9), side="tail", group=0, sample_id=[10**6])
        with pytest.warns(RankMetricWarning, match=f"2 of {nan + 1} ranking tasks"):
            assert bits(metric) != found
    table = RankTable.load(OLD / f"ranks_{version}.npz")
    with pytest.warns(RankMetricWarning, match=f"2 of {nan} ranking tasks have NaN scores"):
        values = trm.evaluate(table, metrics=names)
    assert {f"val/{key}": value for key, value in values.items()} == pytest.approx(known["collection"], rel=1e-12)
    assert torch.equal(RankTable(state["collection.rows"]).compact().rows, table.compact().rows)
