"""The page of a study: one HTML file of tables and figures (page.html), and its manifest."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.canvas import canvas, to_svg
from torchrankmetrics.plots.evaluations import rank_ecdf
from torchrankmetrics.rendering import Tabular, paper_name
from torchrankmetrics.rendering.tabular import render
from torchrankmetrics.study.mean_ranks import ranking
from torchrankmetrics.study.runs import LoadedRun
from torchrankmetrics.study.tables import Rows, StudyTable
from torchrankmetrics.table.columns import ABSENT, Columns
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.version import __version__

if TYPE_CHECKING:
    from torchrankmetrics.study.rank_study import RankStudy

VERSION = 4
AVERAGED = ("mrr", "adjusted_mrr", "amri", "adjusted_auc")
# more distributions than _GRID are small multiples
_MOST_CURVES = 24
_MOST_MODELS = 6
_MANY_TIES = 0.1
_GRID = 4


class Page:
    """Results of a page; ``across`` has averages, ranks and differences that are defined."""

    def __init__(self, study: "RankStudy", table: StudyTable) -> None:
        self.study = study
        self.table = table
        self.drawn = table.models[:_MOST_MODELS]
        self.tests: dict[str, Any] = {
            "confidence_level": table.confidence_level,
            "cluster": table.cluster,
        }
        self.across: dict[str, Any] = {}
        directed = [one for one in table.measures if one.higher_is_better is not None]
        if len(table.datasets) > 1 and len(table.models) > 1 and directed:
            self._compare_over_datasets(directed)
        self.tables = self._values()
        self.tables |= {name: result.tabular() for name, result in self.across.items()}
        self.tables["protocol"] = self._protocol()

    def _compare_over_datasets(self, directed: list[Measure]) -> None:
        """Averages, mean ranks and the difference of the two best models, if they are defined."""
        table = self.table
        has_ranks = all(facts.tie_rates for facts in table.facts.values())
        averaged: list[Measure | str] = [*directed, *(AVERAGED if has_ranks else ())]
        with suppress(ValueError):  # no dataset with values of all models
            self.across["averages"] = self.study.summary(averaged, **self.tests)
        # fewer than two such datasets, or models without common tasks
        with suppress(ValueError):
            ranks = self.across["ranks"] = ranking(table.only(directed[:1]))
            best = [str(model) for model, *_ in ranks.tabular().rows]  # by mean rank
            self.drawn = tuple(model for model in table.models if model in best[:_MOST_MODELS])
            self.across["differences"] = self.study.difference(
                best[0], best[1], directed[0], **self.tests
            )

    def _values(self) -> dict[str, Tabular]:
        """A table of values for each metric."""
        table = self.table
        rows: Rows = "datasets" if len(table.datasets) > len(table.models) else "models"
        tables = {}
        for one in table.measures:
            part = table.only([one]).with_layout(rows=rows)
            tables[f"values {one.key}"] = replace(part.tabular(), notes=part.legend)
        return tables

    def _protocol(self) -> Tabular:
        rows = []
        for name, facts in self.table.facts.items():
            data = self.study.dataset(name)
            sides = " and ".join(map(str, data.reference.analysis.sides)) or "unknown"
            compared = f"{len(data.aligned)} of {len(data.models)} models"
            ties = facts.ties if facts.tie_rates else None
            sizes = ", ".join(self.table.sizes(name)) or f"{facts.tasks} independent tasks"
            rows.append(
                (
                    name,
                    len(data.runs),
                    facts.tasks,
                    sides,
                    facts.candidates or "unknown",
                    ties,
                    compared,
                    sizes,
                )
            )
        return Tabular.named(
            ("dataset", "runs", "tasks", "sides", "candidates", "ties %", "compared", "sample"),
            rows,
        )

    @property
    def warnings(self) -> list[str]:
        """Everything that a reader should know before the tables."""
        found = [
            f"{name}: {warning}"
            for name, warnings in self.table.warnings.items()
            for warning in warnings
        ]
        found += [f"{model} is missing on {data}" for model, data in self.study.missing]
        if tied := self._tied():
            found.append(
                "more than a tenth of the targets have the score of another candidate on "
                f"{', '.join(tied)}"
            )
        return [*found, *self._not_better(), *self.table.doubts]

    def _tied(self) -> list[str]:
        """Datasets with many ties, and the largest share of ties of a model."""
        found = []
        for name, facts in self.table.facts.items():
            rate = max(facts.tie_rates.values(), default=0.0)
            if rate > _MANY_TIES:
                found.append(f"{name} ({100 * rate:.0f}%)")
        return found

    def _not_better(self) -> list[str]:
        """Values that are not significantly better than random ranking."""
        found = []
        for (key, model, data), cell in self.table.cells.items():
            if cell.is_better_than_random is False:
                value = f"{model} on {data}: {paper_name(key)} {cell.value:.3f}"
                random_value = self.table.results[key, data].random_value
                found.append(
                    f"{value} is not significantly better than random ranking ({random_value:.3f})"
                )
        return found

    def html(self, title: str) -> str:
        """Write the page; ImportError without matplotlib."""
        table = self.table
        level = f"{100 * table.confidence_level:g}%"
        names = {one.key: paper_name(one.key) for one in table.measures}
        figure = partial(_figure, count(1))
        manifest = self.manifest()
        # figures are numbered in this order
        values = [figure(*one) for one in self._plots_of_values(names, level)]
        across = [figure(*one) for one in self._plots_across()]
        distributions = [figure(*one) for one in self._distributions()]
        undrawn = [model for model in table.models if model not in self.drawn]
        return render(
            "study/page.html",
            title=title,
            page=self,
            names=names,
            values=values,
            across=across,
            distributions=distributions,
            undrawn=[*undrawn, *table.datasets[_MOST_CURVES:]],
            level=level,
            rate=f"{100 * (1 - table.confidence_level):.3g}%",
            manifest=manifest,
            script=manifest_text(manifest),
        )

    def _plots_of_values(
        self, names: dict[str, str], level: str
    ) -> Iterator[tuple[list[Any], str]]:
        """Plot the values of each metric, with a caption."""
        few = ""
        if self.drawn != self.table.models:
            few = f" Only the {len(self.drawn)} models with the best mean rank."
        part = self.table.only(self.table.measures, self.drawn)
        for key, name in names.items():
            caption = f"{name} with {level} intervals; bars mark random ranking.{few}"
            yield [part.plot(key)], caption

    def _plots_across(self) -> Iterator[tuple[list[Any], str]]:
        """Plot the differences and ranks over datasets, with a caption."""
        for name, one in self.across.items():
            if name != "averages":
                yield [one.plot()], one.about

    def _distributions(self) -> list[tuple[list[Any], str]]:
        """Rank distributions with their captions: a figure each, or one of small multiples."""
        datasets = [name for name, facts in self.table.facts.items() if facts.fewest][:_MOST_CURVES]
        small = len(datasets) > _GRID
        drawn = []
        for name in datasets:
            runs = self.study.dataset(name).models
            rows = {
                model: runs[model][0].analysis.table_rows for model in self.drawn if model in runs
            }
            first = {
                model: RankTable(torch.tensor(one, device="cpu")) for model, one in rows.items()
            }
            if first:
                drawn.append(rank_ecdf(first, ax=canvas(None, 3.3, 2.5)[1] if small else None))
                drawn[-1][1].set_title(name, fontsize=10)
        caption = (
            "Share of tasks with a rank of at most x, first seed of each model; dotted: random "
            "ranking."
        )
        if small:
            return [(drawn, caption)]
        return [([one], caption) for one in drawn]

    def manifest(self) -> dict[str, Any]:
        """Everything that the numbers of the page depend on, and every number of its tables."""
        table = self.table
        study = self.study
        versions = {"python": platform.python_version(), "torchrankmetrics": __version__}
        versions |= {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
        tables = {"values": table.records()} | self.tables
        metrics = [one.key for one in table.measures]
        files = [_file(run) for name in study.datasets for run in study.dataset(name).runs]
        cells = {name: json.loads(one.to_json()) for name, one in tables.items()}
        notes = {name: list(one.notes) for name, one in tables.items()}
        return {
            "manifest": VERSION,
            "versions": versions,
            "options": {"metrics": metrics} | self.tests,
            "models": study.models,
            "datasets": study.datasets,
            "files": files,
            "tables": cells,
            "notes": notes,
            "warnings": self.warnings,
        }


def _figure(numbers: Iterator[int], drawn: list[Any], caption: str) -> dict[str, Any]:
    """The next numbered figure of a page, of one or more drawings."""
    number = next(numbers)
    parts = [to_svg(fig, caption, f"figure{number}-{i}") for i, (fig, _) in enumerate(drawn)]
    return {"svgs": parts, "caption": f"Figure {number}. {caption}"}


def manifest_text(manifest: dict[str, Any]) -> str:
    """Write a manifest as JSON that cannot close an HTML element."""
    return json.dumps(manifest).replace("<", "\\u003c")


def _file(read: LoadedRun) -> dict[str, Any]:
    """Names, file, protocol and SHA-256 of a run: of canonical rows, little-endian, by row."""
    analysis = read.analysis
    run = read.run
    names = {"model": run.model, "dataset": run.dataset, "seed": run.seed, "file": run.file}
    if run.values:
        content = json.dumps(
            {metric: sorted(map(str, one.items())) for metric, one in run.values.items()}
        ).encode()
        protocol: dict[str, Any] = {"tasks": run.num_rows, "metrics": list(run.values)}
    else:
        content = np.ascontiguousarray(analysis.task_rows, dtype="<i8").tobytes()
        protocol = _protocol_of(analysis)
    return {**names, "sha256": hashlib.sha256(content).hexdigest(), "protocol": protocol}


def _protocol_of(analysis: Analysis) -> dict[str, Any]:
    """Numbers of tasks, candidates, groups and NaN scores, and sides."""
    columns = Columns(analysis.task_rows)
    N = columns.num_candidates
    group = columns.group
    return {
        "tasks": int(columns.count.sum()),
        "sides": [str(side) for side in analysis.sides],
        "candidates": [int(N.min()), int(N.max())],
        "sampled": analysis.num_sampled,
        "nan": analysis.num_nan,
        "groups": len(np.unique(group[group != ABSENT])),
        "sample_ids": bool((columns.sample_id != ABSENT).all()),
    }
