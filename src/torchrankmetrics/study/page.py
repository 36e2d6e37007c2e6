"""The page of a study: one HTML file of tables and figures from the template page.html, and its manifest."""

import hashlib
import importlib.metadata
import json
import platform
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.canvas import canvas, to_svg
from torchrankmetrics.plots.distribution import rank_ecdf
from torchrankmetrics.rendering import Rendered, Tabular, paper_name, writers
from torchrankmetrics.study.across import Averages, Differences, Ranking
from torchrankmetrics.study.runs import LoadedRun
from torchrankmetrics.study.tables import WITHIN, StudyTable
from torchrankmetrics.table.columns import ABSENT, Columns
from torchrankmetrics.version import __version__

if TYPE_CHECKING:
    from torchrankmetrics.study.rank_study import RankStudy

VERSION = 3
AVERAGED = ("mrr", "adjusted_mrr", "amri", "adjusted_auc")
_MOST_CURVES, _MOST_MODELS, _MANY_TIES = 24, 6, 0.1
_GRID = 4  # more distributions than this are small multiples


@dataclass(frozen=True, eq=False)
class Contents:
    """Results of a page; ``averages``, ``ranking`` and ``differences`` are None if they are undefined."""

    study: "RankStudy"
    table: StudyTable
    averages: Averages | None
    ranking: Ranking | None
    differences: Differences | None

    @property
    def tables(self) -> dict[str, Tabular]:
        """Printed tables by the names in the manifest."""
        rows: Any = "datasets" if len(self.table.datasets) > len(self.table.models) else "models"
        named = {}
        for one in self.table.measures:
            part = self.table.only([one]).with_layout(rows=rows)
            named[f"values {one.key}"] = replace(part.tabular(), notes=part.legend)
        across = {"averages": self.averages, "ranks": self.ranking, "differences": self.differences}
        named |= {name: table.tabular() for name, table in across.items() if isinstance(table, Rendered)}
        return named | {"protocol": self._protocol()}

    def _protocol(self) -> Tabular:
        rows = []
        for name, facts in self.table.facts.items():
            data = self.study.dataset(name)
            sides = " and ".join(map(str, data.reference.analysis.sides)) or "unknown"
            compared = f"{len(data.aligned)} of {len(data.models)} models"
            candidates = facts.candidates or "unknown"
            rows.append((name, len(data.runs), facts.tasks, sides, candidates, facts.ties, compared))
        return Tabular.named(("dataset", "runs", "tasks", "sides", "candidates", "ties %", "compared"), rows)

    @property
    def warnings(self) -> list[str]:
        """Everything that a reader should know before the tables."""
        table = self.table
        found = [f"{name}: {warning}" for name, warnings in table.warnings.items() for warning in warnings]
        found += [f"{model} is missing on {data}" for model, data in self.study.missing]
        most = {name: max(facts.tie_rates.values()) for name, facts in table.facts.items()}
        if tied := [f"{name} ({100 * rate:.0f}%)" for name, rate in most.items() if rate > _MANY_TIES]:
            found.append(f"more than a tenth of the targets have the score of another candidate on {', '.join(tied)}")
        return [*found, *table.random_cells, *table.doubts]

    @property
    def drawn(self) -> list[str]:
        """Models in the figures: all, or those with the best mean ranks."""
        models = list(self.table.models)
        if len(models) > _MOST_MODELS and self.ranking is not None:
            mean = dict(zip(self.ranking.models, self.ranking.ranks.mean, strict=True))
            best = sorted(models, key=mean.__getitem__)[:_MOST_MODELS]
            models = [model for model in models if model in best]
        return models[:_MOST_MODELS]


def contents_of(
    study: "RankStudy",
    measures: list[Measure],
    confidence_level: float,
    cluster: str | None,
    margin: float | None,
) -> Contents:
    """Compute the results of a page."""
    table = study.table(measures, confidence_level=confidence_level, cluster=cluster, margin=margin)
    several = len(table.datasets) > 1 and len(table.models) > 1
    averages = ranking = differences = None
    directed = [one for one in table.measures if one.higher_is_better is not None]
    if several and directed:
        options: dict[str, Any] = {"confidence_level": confidence_level, "cluster": cluster}
        with suppress(ValueError):  # no dataset with values of all models
            averages = study.summary([*directed, *AVERAGED], **options)
        with suppress(ValueError):  # fewer than two such datasets, or models without common tasks
            ranking = study.mean_ranks(directed[0], confidence_level=confidence_level)
            order = sorted(range(len(table.models)), key=ranking.ranks.mean.__getitem__)
            first, second = (table.models[i] for i in order[:2])
            differences = study.difference(first, second, directed[0], **options)
    return Contents(study, table, averages, ranking, differences)


def page_of(contents: Contents, title: str) -> str:
    """Write the page.

    Raises:
        ImportError: without matplotlib.
        OSError, ValueError: as ``RankStudy.table``.
    """
    table, models, number = contents.table, contents.drawn, 0
    manifest = manifest_of(contents)

    def figure(drawn: list[Any], caption: str) -> dict[str, Any]:
        nonlocal number
        number += 1
        parts = [to_svg(fig, caption, f"figure{number}-{i}") for i, (fig, _) in enumerate(drawn)]
        return {"svgs": parts, "caption": f"Figure {number}. {caption}"}

    few = "" if len(models) == len(table.models) else f" Only the {len(models)} models with the best mean rank."
    level = f"{100 * table.confidence_level:g}%"
    values = [
        figure(
            [table.only([one], models).plot()],
            f"{paper_name(one.key)} with {level} intervals; bars mark random ranking.{few}",
        )
        for one in table.measures
    ]
    ranks = difference = None
    if contents.ranking is not None:
        ranks = figure(
            [contents.ranking.plot()],
            f"Mean ranks by {paper_name(contents.ranking.metric)} over {contents.ranking.ranks.num_datasets} datasets; "
            "a bar joins models that are not significantly different with the datasets as the sample (Friedman, "
            "Nemenyi).",
        )
    if contents.differences is not None:
        difference = figure([contents.differences.plot()], contents.differences.about)
    return writers.render(
        "study/page.html",
        title=title,
        contents=contents,
        tables=contents.tables,
        names={one.key: paper_name(one.key) for one in table.measures},
        values=values,
        ranks=ranks,
        difference=difference,
        distributions=[figure(*drawn) for drawn in _distributions(contents)],
        undrawn=[m for m in table.models if m not in models] + list(table.datasets[_MOST_CURVES:]),
        level=level,
        rate=f"{100 * (1 - table.confidence_level):.3g}%",
        within=WITHIN,
        manifest=manifest,
        script=manifest_text(manifest),
    )


def _distributions(contents: Contents) -> list[tuple[list[Any], str]]:
    """Rank distributions with their captions: a figure each, or one figure of small multiples."""
    known = [name for name in contents.study.datasets if contents.table.facts[name].fewest]
    datasets = known[:_MOST_CURVES]
    small, drawn = len(datasets) > _GRID, []
    for name in datasets:
        runs = contents.study.dataset(name).models
        first = {model: runs[model][0].table for model in contents.drawn if model in runs}
        if first and small:
            _, ax = canvas(None, 3.3, 2.5)
            drawn.append(rank_ecdf(first, ax=ax))
            ax.set_title(name, fontsize=10)
        elif first:
            drawn.append(rank_ecdf(first))
            drawn[-1][1].set_title(name, fontsize=10)
    caption = "Share of tasks with a rank of at most x, first seed of each model; dotted: random ranking."
    return [(drawn, caption)] if small else [([one], caption) for one in drawn]


def manifest_of(contents: Contents) -> dict[str, Any]:
    """Everything that the numbers of the page depend on, and every number of its tables."""
    table, study = contents.table, contents.study
    packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
    tables = {"values": table.records()} | contents.tables
    return {
        "manifest": VERSION,
        "versions": {"python": platform.python_version(), "torchrankmetrics": __version__} | packages,
        "options": {
            "metrics": [one.key for one in table.measures],
            "confidence_level": table.confidence_level,
            "cluster": table.cluster,
            "margin": table.margin,
        },
        "models": study.models,
        "datasets": study.datasets,
        "files": [_file(run) for name in study.datasets for run in study.dataset(name).runs],
        "tables": {name: json.loads(writers.to_json(one)) for name, one in tables.items()},
        "notes": {name: list(one.notes) for name, one in tables.items()},
        "warnings": contents.warnings,
    }


def manifest_text(manifest: dict[str, Any]) -> str:
    """Write a manifest as JSON that cannot close an HTML element."""
    return json.dumps(manifest).replace("<", "\\u003c")


def _file(read: LoadedRun) -> dict[str, Any]:
    """Names of a run, its file, the SHA-256 of its canonical rows (little-endian, row by row), and its protocol."""
    analysis, run = read.analysis, read.run
    columns = Columns(analysis.rows)
    protocol = {
        "tasks": int(columns.count.sum()),
        "sides": [str(side) for side in analysis.sides],
        "candidates": [int(columns.num_candidates.min()), int(columns.num_candidates.max())],
        "sampled": analysis.num_sampled,
        "nan": analysis.num_nan,
        "groups": len(np.unique(columns.group[columns.group != ABSENT])),
        "sample_ids": bool((columns.sample_id != ABSENT).all()),
    }
    names = {"model": run.model, "dataset": run.dataset, "seed": run.seed, "file": run.file}
    digest = hashlib.sha256(np.ascontiguousarray(analysis.rows, dtype="<i8").tobytes()).hexdigest()
    return {**names, "sha256": digest, "protocol": protocol}
