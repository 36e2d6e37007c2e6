"""RankCollection: one store of rows, for all that users do, including checkpoints and merges."""

import copy
import io
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist, nn
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torchrankmetrics as trm
from bits import bits
from public_metrics import scores
from sharding import EMPTY, HEAD, MORE, TAIL, collection, of_one_process, update
from torchrankmetrics import (
    HitsAtK,
    MeanRank,
    MeanReciprocalRank,
    RankCollection,
    RankCount,
    Ranks,
    RankTable,
)
from torchrankmetrics.metrics import buffer as buffer_module
from torchrankmetrics.table.blocks import rows_of
from torchrankmetrics.table.columns import Columns
from torchrankmetrics.table.task_facts import TaskFacts
from worker_pool import WorkerPool

NAMES = ["mrr", "mr", "hits_at_1", "amri", "z_mrr", "optimistic_mr", "count", "tie_rate"]


def filled(*seeds, metrics=NAMES, **options):
    collection = RankCollection(metrics, **options)
    for seed in seeds:
        collection.update(*scores(seed))
    return collection


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_members_that_compute_or_synchronise_otherwise_go_their_own_way():
    class Halved(MeanReciprocalRank):
        def compute(self):
            return super().compute() / 2

    members = {"halved": Halved(), "mrr": MeanReciprocalRank(), "count": RankCount()}
    doubled = RankCount(
        dist_sync_fn=lambda x, group=None: [x, x], distributed_available_fn=lambda: True
    )
    collection = RankCollection(
        members | {"doubled": doubled, "alone": RankCount(sync_on_compute=False)}
    )
    collection.update(*scores(0))
    values = collection.compute()
    assert values["halved"] == values["mrr"] / 2
    assert [int(values[key]) for key in ("count", "doubled", "alone")] == [7, 14, 7]


def test_a_table_is_taken_with_all_that_its_rows_say():
    ranks, later = (trm.rank_scores(*scores(seed)) for seed in (0, 1))
    about = {"side": "head", "group": torch.arange(7) % 2, "sample_id": torch.arange(7)}
    about["weight"] = [1.0, 2, 3, 1, 1, 0, 1]
    metrics = ["mrr", "tail_mr", MeanRank(average="macro", side="head")]
    one, two = (
        RankCollection(metrics),
        RankCollection([*metrics[:2], MeanRank(average="macro", side="head")]),
    )
    one.update(ranks, **about)
    one.update(later, side="tail", group=1)
    whole = RankTable.from_ranks(ranks, **about)
    two.update(whole)
    table = RankTable.from_ranks(later, side="tail", group=1)
    two.update(table)
    table.rows.zero_()  # the table is its owner's
    assert two.compute() == one.compute()
    assert torch.equal(two.table().rows, one.table().rows)
    two.update(RankTable.concatenate([]))  # nothing lacks a side where there is nothing
    for missing in (RankTable.from_ranks(ranks, side="head"), RankTable.from_ranks(ranks, group=0)):
        with pytest.raises(ValueError, match="or be in every row of its RankTable"):
            two.update(missing)
    for name in (*about, "target", "exclude"):
        with pytest.raises(ValueError, match=f"{name} must not be given with a RankTable"):
            two.update(whole, **{name: about.get(name, torch.zeros(7))})
    assert two.compute() == one.compute()


def test_members_share_one_list_which_items_and_indexing_do_not_copy():
    collection = filled(0, 1)
    blocks = [id(block) for block in collection._first.rows]
    assert len(blocks) == 2
    for member in (*collection.values(), *dict(collection.items()).values(), collection["mr"]):
        assert [id(block) for block in member.rows] == blocks
    collection.update(*scores(2))  # goes to all members again
    assert len({id(member.rows) for member in collection.values(copy_state=False)}) == 1
    assert bits(collection) == bits(filled(0, 1, 2))


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_member_reset_alone_resets_its_collection_whatever_its_place(place):
    collection, copied = filled(0, 1), filled(0, 1).clone()
    list(collection.values(copy_state=False))[place].reset()
    assert all(
        not member.rows and member.update_count == 0
        for member in collection.values(copy_state=False)
    )
    collection.update(*scores(2))
    collection.update(*scores(3))
    assert bits(collection) == bits(filled(2, 3))
    list(copied.values())[place].reset()  # as one reads them, by copied states
    copied.update(*scores(2))
    assert bits(copied) == bits(filled(2))


def test_an_instance_keeps_its_own_storage_and_a_collection_keeps_rows_its_way():
    one = trm.RankMetric("mrr", storage="counts")
    collection = RankCollection([one, "mr"])
    assert (one.storage, collection.storage, collection["mr"].storage) == (
        "counts",
        "ranks",
        "ranks",
    )
    collection.update(Ranks([1, 1, 4], None, 9))
    collection.update(Ranks([1, 1, 4], None, 9))
    assert len(collection.local_table()) == 6
    assert collection.compute()["mrr"] == 0.75
    with pytest.raises(TorchMetricsUserError, match="is in a RankCollection"):
        one.update(Ranks([1], None, 9))
    assert one.clone().storage == "counts"


BLOCK = rows_of(Ranks([9], None, 9), TaskFacts())
# of a list, as a metric of a user's own may write them: arguments, and mr of a block with rank 1
# after it
CHANGES = {
    "append": ((BLOCK,), "5.0"),
    "insert": ((0, BLOCK), "5.0"),
    "__setitem__": ((0, BLOCK), "9.0"),
    "clear": ((), "nan"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_rows_drops_the_values(name):
    metric = MeanRank()
    metric.update(Ranks([1], None, 9))
    assert metric.compute() == 1
    arguments, value = CHANGES[name]
    getattr(metric.rows, name)(*arguments)
    assert str(metric.compute().item()) == value


HELD = "is in a RankCollection.* update the collection"
THREE = ["mrr", "mr", "count"]


@pytest.mark.parametrize(
    "copied", [lambda c: c, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_an_update_of_a_member_raises_and_changes_nothing(copied):
    metrics = copied(filled(1, metrics=THREE))
    member = metrics["mr"]
    for refused in (
        member.update,
        member,
        lambda *_: member.merge_state({"rows": MeanRank().rows}),
    ):
        with pytest.raises(TorchMetricsUserError, match=HELD):
            refused(*scores(2))
    assert bits(metrics) == bits(filled(1, metrics=THREE))
    metrics(*scores(2))
    assert member._forward_cache is not None
    assert bits(metrics) == bits(filled(1, 2, metrics=THREE))


every_group = pytest.mark.parametrize("compute_groups", [True, False, [THREE]])


@every_group
def test_a_plain_collection_that_takes_the_metrics_over_updates_them(compute_groups):
    metrics = filled(metrics=THREE)
    plain = MetricCollection(dict(metrics.items()), compute_groups=compute_groups)
    plain.update(*scores(1))
    plain(*scores(2))
    plain.update(*scores(3))
    # they are the same metrics
    assert bits(plain) == bits(metrics) == bits(filled(1, 2, 3, metrics=THREE))


@every_group
def test_a_collection_that_was_taken_over_rejects_updates_and_the_other_goes_on(compute_groups):
    metrics, inner = filled(metrics=THREE), filled(metrics=THREE)
    plain = MetricCollection([metrics], compute_groups=compute_groups)
    named = MetricCollection({"in": inner})
    outer, taken = (
        RankCollection([second := filled(metrics=THREE), "hits_at_1"]),
        filled(metrics=THREE),
    )
    for other, those in ((plain, metrics), (named, inner), (outer, second)):
        for _ in range(2):  # before and after a reset
            other.update(*scores(1))
            for refused in (those.update, those, lambda *_, those=those: those.merge_state(taken)):
                with pytest.raises(
                    TorchMetricsUserError, match="taken over by another collection: update that one"
                ):
                    refused(*scores(2))
            with pytest.raises(TorchMetricsUserError, match="taken over by another collection"):
                those.add_metrics(["amri"])
            assert list(those.keys()) == ["mrr", "mr", "count"]
            other(*scores(3))
            other.update(*scores(4))
            found = bits(other)
            assert (
                found["in_mr" if other is named else "mr"]
                == bits(filled(1, 3, 4, metrics=THREE))["mr"]
            )
            those.reset()


@pytest.mark.parametrize("key", ["mrr", "count"])
def test_metrics_updated_separately_warn_and_keep_their_rows(key):
    metrics = filled(1, metrics=THREE)
    dict(metrics.items())[key].update(*scores(2))
    with pytest.raises(TorchMetricsUserError, match="updated apart from its RankCollection"):
        metrics.update(*scores(3))
    metrics.reset()
    metrics.update(*scores(3))
    assert bits(metrics) == bits(filled(3, metrics=THREE))


THREADS, UPDATES, TASKS = 8, 60, 64


@pytest.fixture
def _often_merged_and_switched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(buffer_module, "_COMPACT_FROM", 1 << 10)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_often_merged_and_switched")
@pytest.mark.parametrize("storage", ["ranks", "counts"])
@pytest.mark.parametrize(
    "make",
    [
        RankCount,
        lambda **kw: RankCollection(["count", "mr"], **kw),
        # explicit groups: several first updates at once fail inside torchmetrics, which then looks
        # for groups
        lambda **kw: MetricCollection(
            {"count": RankCount(**kw), "mr": MeanRank(**kw)}, compute_groups=[["count", "mr"]]
        ),
    ],
)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used and copied"])
def test_threads_lose_no_task(make: Callable[..., Any], storage: str, used: bool) -> None:
    metric = make(storage=storage)
    expected = THREADS * UPDATES * TASKS
    if used:
        for _ in range(2):
            metric.reset()
            metric(Ranks([1] * TASKS, None, 9))
        expected += TASKS
        metric = pickle.loads(pickle.dumps(metric.clone()))

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(UPDATES):
            metric.update(Ranks(torch.randint(1, 1000, (TASKS,), generator=generator), None, 1000))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = metric.compute()
    assert (found["count"] if isinstance(found, dict) else found) == expected


ROWS = rows_of(Ranks([1, 4], None, 9), TaskFacts("head"))
# make_old_files.py wrote them there, with the sources of 0.1.0
OLD = Path(__file__).parents[1] / "data"


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


@pytest.mark.parametrize(
    "make", [MeanRank, lambda: RankCollection(["mr", "amri"])], ids=["metric", "collection"]
)
@pytest.mark.parametrize(("rows", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_no_update_keeps_are_rejected_before_anything_changes(
    make: Any, rows: Any, message: str
) -> None:
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
def test_queries_that_no_update_names_are_rejected_where_they_are_counted(
    make: Any, query: int
) -> None:
    """A negative query is a hash of the answers of one row of scores; none may be missing."""
    metric = make()
    with pytest.raises(RuntimeError, match="1 queries lack relevant items of the same update"):
        metric.load_state_dict({"rows": changed("query", query)})
    assert not metric.state_dict()
    metric.persistent(True)
    metric.update(torch.rand(3, 9), [[1, 2], [4], [5]])
    again = make()
    again.load_state_dict(metric.state_dict())
    assert bits(again) == bits(metric)


@pytest.mark.parametrize(
    ("metric", "incoming", "message"),
    [
        (HitsAtK(1), HitsAtK(3), "same metric, 'hits_at_1'; got 'hits_at_3'"),
        (MeanRank(), MeanRank(view="z_score"), "same metric, 'mr'; got 'z_mr'"),
        (MeanRank(), MeanRank(average="macro"), "same metric, 'mr'; got 'macro_mr'"),
        (
            MeanRank(side="tail"),
            {"rows": rows_of(Ranks([1], None, 9), TaskFacts())},
            "side must be passed",
        ),
        (MeanRank(average="macro"), {"rows": [ROWS]}, "group must be passed"),
        (RankCollection(["tail_mr"]), RankCollection(["mr"]), "side must be passed"),
        (
            RankCollection([MeanRank(average="macro")]),
            RankCollection(["mr"]),
            "group must be passed",
        ),
    ],
)
def test_merge_state_raises_where_update_raises(metric: Any, incoming: Any, message: str) -> None:
    if not isinstance(incoming, dict):
        incoming.update(
            Ranks([1], None, 9),
            **({"group": 0} if getattr(incoming, "average", "") == "macro" else {}),
        )
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
        nn.ModuleDict({"metric": back}).load_state_dict(
            torch.load(io.BytesIO(state), weights_only=True)
        )
        found[name] = bits(back)
        update(back, [MORE, EMPTY][rank])
        found[name + " and more"] = bits(back)
    single = MeanReciprocalRank()
    single.load_state_dict({"rows": [ROWS]})
    found["single"] = bits(single)
    return found


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_rows_of_a_checkpoint_come_back_once_on_several_processes(
    pool: WorkerPool, storage: str
) -> None:
    """Every process loads: its own checkpoint, the first's, the second's, and an unsigned one."""
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
    metrics: Any = nn.ModuleDict(
        {"collection": RankCollection(names, prefix="val/"), "single": single}
    )
    metrics.load_state_dict(state)
    for metric, values in (
        (metrics["collection"], known["collection"]),
        (single, {"": known["single"]}),
    ):
        with pytest.warns(trm.RankMetricWarning, match=f"2 of {nan} ranking tasks have NaN scores"):
            found = bits(metric)
        assert {key: float.fromhex(value) for key, value in found.items()} == pytest.approx(
            values, rel=1e-12
        )
        metric.update(Ranks([1], None, 9), side="tail", group=0, sample_id=[10**6])
        with pytest.warns(trm.RankMetricWarning, match=f"2 of {nan + 1} ranking tasks"):
            assert bits(metric) != found
    table = RankTable.load(OLD / f"ranks_{version}.npz")
    with pytest.warns(trm.RankMetricWarning, match=f"2 of {nan} ranking tasks have NaN scores"):
        values = trm.evaluate(table, metrics=names)
    assert {f"val/{key}": value for key, value in values.items()} == pytest.approx(
        known["collection"], rel=1e-12
    )
    assert torch.equal(RankTable(state["collection.rows"]).compact().rows, table.compact().rows)
