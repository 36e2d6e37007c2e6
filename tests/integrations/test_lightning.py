"""Lightning runs: two processes and one log the same values, however the collection is logged."""

import csv
import io
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader

from fuzzing import cases
from torchrankmetrics import MeanReciprocalRank, RankCollection
from torchrankmetrics.integrations.lightning import UnpaddedBatchSampler
from worker_pool import WorkerPool

pytest.importorskip("pytorch_lightning", reason="needs the extra 'lightning'")


import lightning_jobs
from lightning_jobs import EPOCHS, NAMES, SAMPLES, TARGET, score_table
from torchrankmetrics.integrations.early_stopping import EarlyStopping

Results = dict[str, Any]


@pytest.fixture(scope="module")
def results() -> dict[str, list[Results]]:
    """All scenarios on one process without a group, and on two.

    They run in one go, because Lightning is slow to import.
    """
    found: dict[str, list[Results]] = {}

    def start(name: str, devices: int) -> None:
        pool = WorkerPool(devices, timeout=240)
        with tempfile.TemporaryDirectory() as folder:
            found[name] = pool.run(
                lightning_jobs.run_all, [(rank, devices, folder) for rank in range(devices)]
            )
        pool.close()

    threads = [threading.Thread(target=start, args=args) for args in (("one", 1), ("two", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {"one", "two"}, "a run failed, see above"
    return found


def direct(epoch: int, prefix: str = "val/") -> dict[str, float]:
    metrics = RankCollection(list(NAMES), prefix=prefix)
    metrics.update(score_table()[epoch], TARGET, side="tail")
    return {key: value.item() for key, value in metrics.compute().items()}


def runs(results: dict[str, list[Results]], scenario: str) -> list[Any]:
    return [found[scenario] for name in ("one", "two") for found in results[name]]


@pytest.mark.parametrize("how", ["epoch end", "steps", "loaders"])
def test_native_logging_is_bit_identical(results: dict[str, list[Results]], how: str) -> None:
    # two loaders have a clone each
    prefixes = ["val_0/", "val_1/"] if how == "loaders" else ["val/"]
    expected = [
        dict(item for one in prefixes for item in direct(epoch, one).items()) for epoch in range(2)
    ]
    for history in runs(results, how):
        assert history == expected  # and nothing leaks from the sanity check


def test_forward_logs_the_epoch_beside_the_step(results: dict[str, list[Results]]) -> None:
    for history in runs(results, "forward"):
        for found, expected in zip(history, (direct(0), direct(1)), strict=True):
            assert {key: found[key] for key in expected} == expected
            assert {
                f"{key}_epoch": value for key, value in expected.items()
            }.items() <= found.items()


def test_validate_and_test_log_without_fit(results: dict[str, list[Results]]) -> None:
    for validated, tested, history in runs(results, "stages"):
        assert validated == history == [direct(0)]
        assert tested == [direct(0, prefix="test/")]


@pytest.mark.parametrize("sampler", ["padded", "in step"])
def test_padded_samples_count_once(sampler: str, results: dict[str, list[Results]]) -> None:
    for history, _ in runs(results, sampler):
        assert history == [direct(0)], sampler


def test_processes_in_step_have_as_many_batches(results: dict[str, list[Results]]) -> None:
    assert {tuple(batches) for _, batches in runs(results, "in step")[1:]} == {(2,)}


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_trainer_that_injects_its_sampler_assigns_every_sample_once(
    name: str, results: dict[str, list[Results]]
) -> None:
    for way in range(2):
        histories, batches, indices = zip(
            *(found["trainer shards"][way] for found in results[name]), strict=True
        )
        assert all(history == [direct(0)] for history in histories)
        assert len(set(map(tuple, batches))) == 1  # in step
        samples = [sample for process in indices for batch in process for sample in batch]
        assert sorted(samples) == list(range(SAMPLES))


def test_early_stopping_checkpoints_and_loggers(results: dict[str, list[Results]]) -> None:
    best = max(range(EPOCHS), key=lambda epoch: direct(epoch)["val/adjusted_mrr"])
    for found in runs(results, "callbacks"):
        assert found["history"] == [direct(epoch) for epoch in range(best + 3)]
        assert found["best"] == f"{best}.ckpt"
        assert found["best score"] == direct(best)["val/adjusted_mrr"]
        assert found["stopped"] == best + 3
        assert found["saved"] == ["table", "weight"]
    for found in (results["one"][0]["callbacks"], results["two"][0]["callbacks"]):
        lines = list(csv.DictReader(io.StringIO(found["csv"])))
        assert set(direct(0)) <= set(lines[0])
        logged = [direct(epoch)["val/mrr"] for epoch in range(best + 3)]
        assert [float(line["val/mrr"]) for line in lines] == pytest.approx(logged)


def test_resume_from_a_checkpoint_of_a_validation(results: dict[str, list[Results]]) -> None:
    for whole, resumed, saved in runs(results, "resume"):
        assert whole == [direct(epoch) for epoch in range(3)]
        assert resumed == [direct(epoch) for epoch in (2, 3)]
        assert saved == ["table", "weight"]


@cases(60, 2000)
@given(size=st.integers(1, 60), batch_size=st.integers(1, 9), processes=st.integers(1, 8))
def test_unpadded_batches_assign_every_sample_once_in_as_many_batches(
    size, batch_size, processes
) -> None:
    def sampler(rank: int) -> UnpaddedBatchSampler:
        return UnpaddedBatchSampler(range(size), batch_size, num_replicas=processes, rank=rank)

    if size < processes:
        with pytest.raises(ValueError, match="dataset must have a sample for each"):
            sampler(0)
        return
    for options, message in (
        ({"batch_size": 0}, "batch_size"),
        ({"rank": processes}, "rank must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            UnpaddedBatchSampler(
                range(size), **{"batch_size": 2, "num_replicas": processes, "rank": 0, **options}
            )
    indices = [list(sampler(rank)) for rank in range(processes)]
    assert sorted(index for batches in indices for batch in batches for index in batch) == list(
        range(size)
    )
    assert {len(batches) for batches in indices} == {len(sampler(0))}
    assert all(1 <= len(batch) <= max(batch_size, 2) for batches in indices for batch in batches)
    assert len(sampler(0)) <= -(-size // (batch_size * processes))


def job_batches(loader: DataLoader) -> tuple[int, list[list[int]]]:
    return len(loader), list(loader.batch_sampler)


def test_a_sampler_from_before_the_process_group_counts_its_processes() -> None:
    data = torch.arange(SAMPLES)
    loader = DataLoader(data, batch_sampler=UnpaddedBatchSampler(data, 4))
    # alone: all samples
    assert job_batches(loader) == (3, [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]])
    pool = WorkerPool(2)
    (length, mine), (other_length, others) = pool.run(job_batches, [(loader,), (loader,)])
    pool.close()
    assert length == other_length == len(mine) == len(others) == 2
    assert sorted(sample for batch in mine + others for sample in batch) == list(range(SAMPLES))


@pytest.mark.parametrize("function", [len, list])
def test_num_replicas_without_a_process_group_need_a_rank(function: Any) -> None:
    data = torch.arange(SAMPLES)
    with pytest.raises(
        ValueError,
        match="rank must be given with num_replicas=2 where there is no process group",
    ):
        function(UnpaddedBatchSampler(data, 4, num_replicas=2))


def fit(folder: Path, callback: Any) -> Any:
    trainer, _ = lightning_jobs.trainer_for(1, str(folder), callbacks=[callback], max_epochs=4)
    model = lightning_jobs.lightning_model()
    del model.test_ranks, model.loaders  # one collection: short names are clear
    trainer.fit(model, lightning_jobs.PADDED, lightning_jobs.PADDED)
    return trainer


@pytest.mark.trains
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "key"), [("val/hits@1", "val/hits_at_1"), ("mr", "val/mr")])
def test_any_name_stops_in_its_direction(name: str, key: str, tmp_path: Path) -> None:
    stop = EarlyStopping(monitor=name, patience=1)
    trainer = fit(tmp_path, stop)
    assert (stop.monitor, stop.mode) == (key, "min" if name == "mr" else "max")
    assert stop.best_score == (min if name == "mr" else max)(
        direct(epoch)[key] for epoch in range(4)
    )
    state = stop.state_dict()
    stop.setup(trainer, trainer.lightning_module, "test")
    assert stop.state_dict() == state


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_name_or_mode_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use one of val/mrr, val/mr, val/hits_at_1"):
        fit(tmp_path, EarlyStopping(monitor="val/hist@1"))
    with pytest.raises(ValueError, match="mode must be 'min' for 'val/mr'"):
        fit(tmp_path, EarlyStopping(monitor="mr", mode="max"))


def test_steps_and_epochs_log_the_compute_of_a_subclass(tmp_path: Path) -> None:
    import pytorch_lightning as pl

    class Percent(MeanReciprocalRank):
        def update(  # type: ignore[override]
            self, preds: torch.Tensor, target: torch.Tensor
        ) -> None:
            for part in (preds, preds.flip(1)):
                super().update(part, target)

        def compute(self) -> torch.Tensor:
            return 100 * super().compute()

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.metric = Percent()
            self.steps: list[float] = []

        def validation_step(self, batch: torch.Tensor, index: int) -> None:
            target = torch.zeros(len(batch), dtype=torch.int64)
            self.metric(batch, target)
            self.steps.append(self.metric._forward_cache.item())
            self.log("mrr", self.metric, on_step=True, on_epoch=True)

    module = Module()
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
    )
    scores = torch.tensor([[0.9, 0.5, 0.1], [0.9, 0.5, 0.3], [0.5, 0.9, 0.1], [0.5, 0.9, 0.1]])
    trainer.validate(module, DataLoader(scores, batch_size=2), verbose=False)
    # ranks 1 and 3, then 2 and 3
    assert module.steps == pytest.approx([100 * 2 / 3, 100 * 5 / 12])
    assert trainer.callback_metrics["mrr_epoch"].item() == pytest.approx(100 * 13 / 24)
