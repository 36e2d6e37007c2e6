"""Programs that hosts run on metrics, each in a fork that has not used Numba or Dynamo before.

Usage: ``fresh_programs.py [--without-numba] PROGRAM...`` prints one JSON object per program: its
    values after the host
has converted the metric, or a traceback, and the values without the host.
"""

import argparse
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torchmetrics import MetricCollection

from bits import bits
from torchrankmetrics import (
    MeanRank,
    RankCollection,
    RankMetric,
    Ranks,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.ranking.accumulator import RankAccumulator

Convert = Callable[[Any], Any]


def metrics() -> list[Any]:
    """A metric, one that merges equal rows, a collection, and a plain collection of both."""
    plain = {"mr": MeanRank(), "amri": RankMetric("amri"), "set": RankCollection(["z_mrr"])}
    return [
        MeanRank(),
        RankMetric("z_mr", storage="counts"),
        RankCollection(["mr", "z_mrr"]),
        MetricCollection(plain),
    ]


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
    return [
        (torch.rand(5, 9, generator=generator), torch.randint(9, (5,), generator=generator))
        for _ in range(3)
    ]


def accumulate(scores: Tensor, target: Tensor) -> Tensor:
    accumulator = RankAccumulator(scores.gather(1, target[:, None])[:, 0], target, (5, 9))
    for chunk in scores.split(4, 1):
        accumulator.update(chunk)
    return accumulator.compute().optimistic + 1


def compiled_step(convert: Convert) -> Iterator[Any]:
    """An update and the value of a plain collection within a step that is compiled."""
    metric = metrics()[-1]

    def step(scores: Tensor, target: Tensor) -> Any:
        metric.update(2 * scores, target)
        return scores > 0.5, metric.compute()

    step = convert(step)
    for batch in batches():
        yield step(*batch)
    yield metric.compute()


def compiled_modules(convert: Convert) -> Iterator[Any]:
    """Metrics that are compiled themselves."""
    for metric in metrics()[::2]:
        module = convert(metric)
        yield [module(*batch) for batch in batches()]
        yield metric.compute()


def compiled_functions(convert: Convert) -> Iterator[Any]:
    """Every function and every metric within one step."""
    members_ = nn.ModuleList(metrics())

    def step(scores: Tensor, target: Tensor) -> Any:
        scores = 2 * scores
        found: list[Any] = [rank_scores(scores, target).optimistic + 1, accumulate(scores, target)]
        found += [
            rank_embeddings(scores, scores, target % 5).optimistic + 1,
            evaluate(scores, target, ["mr"])["mr"],
        ]
        for metric in members_:
            metric.update(scores, target)
            found += [metric(scores, target), metric.compute()]
        return found

    step = convert(step)
    for batch in batches():
        yield step(*batch)
    yield [metric.compute() for metric in members_]


class Holder(nn.Module):
    def __init__(self, metric: nn.Module) -> None:
        super().__init__()
        self.metric = metric

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def script(convert: Convert) -> Iterator[Any]:
    for metric in metrics():
        for batch in batches():  # before and after the first values
            convert(metric)
            yield [convert(Holder(metric))(torch.ones(2)), metric(*batch), metric.compute()]


CASTS: list[Convert] = [
    lambda m: m.half(),
    lambda m: m.to(torch.bfloat16),
    lambda m: m.to(torch.float32),
    lambda m: m.type(torch.float16),
    lambda m: m.set_dtype(torch.bfloat16),
    lambda m: nn.Sequential(m).to(torch.bfloat16),
]


def cast(convert: Convert) -> Iterator[Any]:
    for metric in metrics():
        members = (
            metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
        )
        for apply in CASTS:
            metric.reset()
            # too large for float16, too fine for bfloat16
            for ranks in ([100_000, 70_000], [70_127]):
                metric(Ranks(ranks, None, 200_001))
                metric.compute()
                convert(apply)(metric)
                yield [metric.compute(), [member._forward_cache for member in members]]


def lightning(convert: Convert, precision: Any = None) -> Any:
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.metric = MeanRank()
            self.metrics = RankCollection(["amri", "p_mr"], prefix="val/")

        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

        def validation_step(self, batch: Any, index: int) -> None:
            # integers: the precision of Lightning leaves them alone
            scores = batch[1][:, None] * torch.arange(9) % 7
            self.metrics.update(scores, batch[1])
            self.metric(Ranks(batch[1] + 70_000, None, 200_001))
            self.log("mr", self.metric)
            self.log_dict(self.metrics)

    options = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False
    )
    trainer = pl.Trainer(accelerator="cpu", precision=precision, **options)
    loader = torch.utils.data.DataLoader(batches(), batch_size=None)
    return trainer.validate(convert(Module()), loader, verbose=False)


def to_torchscript(module: Any) -> Any:
    assert module.to_torchscript()(torch.ones(2)).tolist() == [2, 2]
    return module


def same(value: Any) -> Any:
    return value


def compiled(value: Any) -> Any:
    return torch.compile(value, backend="eager")


# a program, how its host converts, and what stands for the conversion without the host
PROGRAMS: dict[str, tuple[Callable[[Convert], Any], Convert, Convert]] = {
    "compile.step": (compiled_step, compiled, same),
    "compile.modules": (compiled_modules, compiled, same),
    "compile.functions": (compiled_functions, compiled, same),
    "compile.lightning": (lightning, compiled, same),
    "script": (script, torch.jit.script, same),
    "script.lightning": (lightning, to_torchscript, same),
    "cast": (cast, same, lambda apply: same),
    "cast.lightning": (
        lambda convert: lightning(same, convert("bf16-true")),
        same,
        lambda precision: None,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-numba", action="store_true")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    if options.without_numba:
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: (
            None if name == "numba" else find(name, *rest)
        )
        sys.modules["numba"] = None  # type: ignore[assignment]
    for name in options.programs:
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        program, convert, alone = PROGRAMS[name]
        found: dict[str, Any] = {"program": name}
        try:
            found |= {
                "converted": plain(list(program(convert))),
                "alone": plain(list(program(alone))),
            }
        except BaseException:
            found["converted"] = traceback.format_exc()[-3000:]
        print(json.dumps(found), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
