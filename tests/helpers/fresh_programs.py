"""Programs that hosts run on metrics, each in a fork that has not used Numba or Dynamo before.

Usage: ``fresh_programs.py [--without-numba] PROGRAM...`` prints one JSON object per program: its values after the host
has converted the metric, or a traceback, and the values without the host.
"""

import argparse
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torchmetrics import MetricCollection

from bits import bits
from torchrankmetrics import MeanRank, RankCollection, RankMetric, Ranks, evaluate, rank_embeddings, rank_scores
from torchrankmetrics.ranking.accumulator import RankAccumulator

Convert = Callable[[Any], Any]
Step = Callable[[Tensor, Tensor], Any]
METRICS: dict[str, Callable[[], Any]] = {
    "metric": MeanRank,
    "counts": lambda: RankMetric("z_mr", storage="counts"),
    "collection": lambda: RankCollection(["mr", "z_mrr"]),
    "plain": lambda: MetricCollection({"mr": MeanRank(), "amri": RankMetric("amri"), "set": RankCollection(["z_mrr"])}),
}


def plain(values: Any) -> Any:
    """Values as JSON that is equal only if every bit is."""
    if isinstance(values, float):
        return values.hex()
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    if isinstance(values, dict) and not all(isinstance(value, Tensor) for value in values.values()):
        return {key: plain(value) for key, value in values.items()}
    return values.tolist() if isinstance(values, Tensor) and values.ndim else bits(values)


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(5, 9, generator=generator), torch.randint(9, (5,), generator=generator)) for _ in range(3)]


# --- inside torch.compile ---------------------------------------------------------------------------------------------


def update(metric: Any) -> Step:
    def step(scores: Tensor, target: Tensor) -> Tensor:
        metric.update(2 * scores, target)
        return scores > 0.5

    return step


def compute(metric: Any) -> Step:
    def step(scores: Tensor, target: Tensor) -> Any:
        metric.update(2 * scores, target)
        return metric.compute()

    return step


def accumulate(scores: Tensor, target: Tensor) -> Tensor:
    scores = 2 * scores
    accumulator = RankAccumulator(scores.gather(1, target[:, None])[:, 0], target, (5, 9))
    for chunk in scores.split(4, 1):
        accumulator.update(chunk)
    return accumulator.compute().optimistic + 1


def everything(metrics: nn.ModuleList) -> Step:
    def step(scores: Tensor, target: Tensor) -> Any:
        found = [function(scores, target) for function in FUNCTIONS.values()]
        for metric in metrics:
            metric.update(2 * scores, target)
            found += [metric(scores, target), metric.compute()]
        return found

    return step


STEPS: dict[str, Callable[[Any], Step]] = {
    "update": update,
    "forward": lambda metric: lambda scores, target: metric(2 * scores, target),
    "compute": compute,
    "module": lambda metric: metric,
    "everything": everything,
}
FUNCTIONS: dict[str, Step] = {
    "rank_scores": lambda scores, target: rank_scores(2 * scores, target).optimistic + 1,
    "rank_embeddings": lambda scores, target: rank_embeddings(2 * scores, scores, target % 5).optimistic + 1,
    "accumulator": accumulate,
    "evaluate": lambda scores, target: evaluate(2 * scores, target, ["mr"])["mr"],
}


def run_function(name: str, convert: Convert) -> Any:
    function = convert(FUNCTIONS[name])
    return [function(*batch) for batch in batches()]


def run_step(name: str, convert: Convert, kind: str) -> Any:
    metric = nn.ModuleList(make() for make in METRICS.values()) if kind == "all" else METRICS[kind]()
    step = convert(STEPS[name](metric))
    found = [step(*batch) for batch in batches()]
    return [found, [one.compute() for one in metric] if kind == "all" else metric.compute()]


# --- other conversions ------------------------------------------------------------------------------------------------


class Holder(nn.Module):
    def __init__(self, metric: nn.Module) -> None:
        super().__init__()
        self.metric = metric

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def script(convert: Convert, kind: str) -> Any:
    metric, found = METRICS[kind](), []
    for batch in batches():  # before and after the first values
        convert(metric)
        found += [convert(Holder(metric))(torch.ones(2)), metric(*batch), metric.compute()]
    return found


CASTS: list[Convert] = [
    lambda m: m.half(),
    lambda m: m.to(torch.float16),
    lambda m: m.to(torch.bfloat16),
    lambda m: m.to(torch.float32),
    lambda m: m.type(torch.float16),
    lambda m: m.set_dtype(torch.bfloat16),
    lambda m: nn.Sequential(m).to(torch.bfloat16),
]


def cast(convert: Convert, kind: str) -> Any:
    metric, found = METRICS[kind](), []
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    for apply in CASTS:
        metric.reset()
        for ranks in ([100_000, 70_000], [70_127]):  # too large for float16, too fine for bfloat16
            metric(Ranks(ranks, None, 200_001))
            metric.compute()
            convert(apply)(metric)
            found += [metric.compute(), [member._forward_cache for member in members]]
    return found


def lightning(convert: Convert, precision: Any = None) -> Any:
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.metric = METRICS["metric"]()
            self.metrics = RankCollection(["amri", "p_mr"], prefix="val/")

        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

        def validation_step(self, batch: Any, index: int) -> None:
            scores = batch[1][:, None] * torch.arange(9) % 7  # integers: the precision of Lightning leaves them alone
            self.metrics.update(scores, batch[1])
            self.metric(Ranks(batch[1] + 70_000, None, 200_001))
            self.log("mr", self.metric)
            self.log_dict(self.metrics)

    options = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False)
    trainer = pl.Trainer(accelerator="cpu", precision=precision, **options)
    loader = torch.utils.data.DataLoader(batches(), batch_size=None)
    return trainer.validate(convert(Module()), loader, verbose=False)


def to_torchscript(module: Any) -> Any:
    assert module.to_torchscript()(torch.ones(2)).tolist() == [2, 2]
    return module


def same(value: Any) -> Any:
    return value


def run(program: str, converted: bool) -> Any:
    """The values of a program such as "compile.update.metric", converted by the host or not."""
    host, _, rest = program.partition(".")
    name, _, kind = rest.partition(".")
    if host == "compile":
        convert = torch.compile(backend="eager") if converted else same
        if name == "lightning":
            return lightning(convert)
        return run_step(name, convert, kind) if kind else run_function(name, convert)
    if host == "script":
        convert = torch.jit.script if converted else same
        return lightning(to_torchscript if converted else same) if name == "lightning" else script(convert, name)
    if name == "lightning":
        return lightning(same, "bf16-true" if converted else None)
    return cast(same if converted else lambda apply: same, name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-numba", action="store_true")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    if options.without_numba:
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
        sys.modules["numba"] = None  # type: ignore[assignment]
    for name in options.programs:
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        found: dict[str, Any] = {"program": name}
        try:
            found |= {"converted": plain(run(name, True)), "alone": plain(run(name, False))}
        except BaseException:
            found["converted"] = traceback.format_exc()[-3000:]
        print(json.dumps(found), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
