"""The page of a study: one HTML file without any other, for a screen, a phone, the dark and paper."""

import html
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrankmetrics.plots.distribution import rank_ecdf
from torchrankmetrics.plots.svg import to_svg
from torchrankmetrics.rendering import Tabular
from torchrankmetrics.rendering.markup import to_html
from torchrankmetrics.study.cards import VERSION, card_of, versions
from torchrankmetrics.study.contents import Contents
from torchrankmetrics.study.options import Options
from torchrankmetrics.study.run_store import RunStore
from torchrankmetrics.study.tables import WITHIN

CARDS = "manifest"
_MOST_CURVES, _MOST_MODELS, _MANY_TIES = 6, 6, 0.1
_STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def page_of(study: RunStore, options: Options, contents: Contents, title: str) -> str:
    """Write the page.

    Raises:
        ImportError: without matplotlib, which draws its figures.
        OSError, ValueError: as ``RankStudy.table``.
    """
    figures = _Figures()
    seeds = f", {len(study.seeds)} seeds" if len(study.seeds) > 1 else ""
    about = f"{len(study.models)} models, {len(study.datasets)} data sets{seeds}: {len(study)} tables of ranks."
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="about">{about} Computed by torchrankmetrics {versions()["torchrankmetrics"]}.</p>',
        *_warnings(study, contents),
        "<h2>Values</h2>",
        *(table_of(f"values {key}", key, contents) for key in contents.single),
        *_values(contents, figures),
        *_across(contents, figures),
        *_distributions(study, contents, figures),
        *_hardest(contents),
        "<h2>Protocol</h2>",
        table_of("protocol", "What was ranked among what", contents),
        *_method(contents),
        *_cards(study, options, contents),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(parts) + "\n</body>\n</html>\n"


class _Figures:
    """Figures of the page, numbered."""

    def __init__(self) -> None:
        self.number = 0

    def figure(self, drawn: Any, caption: str) -> str:
        self.number += 1
        svg = to_svg(drawn[0], caption, f"figure{self.number}")
        return f"<figure>\n{svg}\n<figcaption>Figure {self.number}. {_text(caption)}</figcaption>\n</figure>"


def _text(text: str) -> str:
    return html.escape(text)


def table_of(name: str, caption: str, contents: Contents) -> str:
    """A table of the contents with its notes, as the page has it."""
    tabular = contents.tables[name].tabular()
    written = to_html(replace(tabular, notes=()))
    captioned = written.replace("<table>", f"<table>\n<caption>{_text(caption)}</caption>", 1)
    notes = "\n".join(f'<p class="note">{_text(note)}</p>' for note in tabular.notes)
    return f'<section data-table="{_text(name)}">\n<div class="table">\n{captioned}\n</div>\n{notes}\n</section>'


def _warnings(study: RunStore, contents: Contents) -> Iterable[str]:
    told = [f"{name}: {warning}" for name, facts in contents.table.facts.items() for warning in facts.warnings]
    told += [f"{model} is missing on {data}" for model, data in study.missing]
    most = {name: max(facts.tie_rates.values()) for name, facts in contents.table.facts.items()}
    if tied := [f"{name} ({100 * rate:.0f} %)" for name, rate in most.items() if rate > _MANY_TIES]:
        told.append(f"more than a tenth of the true answers share their score with others on {', '.join(tied)}")
    told += [*contents.table.remarks, *contents.table.doubtful]
    if told:
        yield '<section class="warnings">\n<h2>Before reading on</h2>\n<ul>'
        yield from (f"<li>{_text(warning)}</li>" for warning in told)
        yield "</ul>\n</section>"


def _values(contents: Contents, figures: _Figures) -> Iterable[str]:
    table = contents.table
    models = _drawn(contents)
    for one in table.measures:
        few = "" if len(models) == len(table.models) else f" The {len(models)} models with the best mean rank."
        caption = f"{one.key} with {100 * table.confidence_level:g} % intervals; bars mark chance.{few}"
        yield figures.figure(table.only([one], models).plot(), caption)


def _drawn(contents: Contents) -> list[str]:
    models = list(contents.table.models)
    if len(models) > _MOST_MODELS and contents.ranking is not None:
        mean = dict(zip(contents.ranking.models, contents.ranking.ranks.mean, strict=True))
        best = sorted(models, key=mean.__getitem__)[:_MOST_MODELS]
        models = [model for model in models if model in best]
    return models[:_MOST_MODELS]


def _across(contents: Contents, figures: _Figures) -> Iterable[str]:
    if contents.averages is None and contents.ranking is None:
        return
    yield "<h2>Across data sets</h2>"
    if contents.averages is not None:
        yield table_of("averages", "Each data set counts once", contents)
    if (ranking := contents.ranking) is not None:
        yield figures.figure(
            ranking.plot(),
            f"Mean ranks by {ranking.metric} over {ranking.ranks.num_datasets} data sets; a bar joins models that are "
            "not told apart with the data sets as the sample (Friedman and Nemenyi).",
        )
        yield table_of("ranks", "Mean ranks", contents)
    if (found := contents.differences) is not None:
        yield figures.figure(found.plot(), found.about)
        yield table_of("differences", f"{found.metric}: {found.a} less {found.b}", contents)


def _distributions(study: RunStore, contents: Contents, figures: _Figures) -> Iterable[str]:
    yield "<h2>Distribution of ranks</h2>"
    models, datasets = _drawn(contents), study.datasets[:_MOST_CURVES]
    for name in datasets:
        there = study.dataset(name).models
        first = {model: there[model][0].table for model in models if model in there}
        if not first:
            continue
        caption = f"{name}: share of tasks with a rank of at most x, first seed of each model; dotted is chance."
        yield figures.figure(rank_ecdf(first), caption)
    left_out = [f"models {', '.join(m for m in study.models if m not in models)}"] * (len(models) < len(study.models))
    left_out += [f"data sets {', '.join(study.datasets[_MOST_CURVES:])}"] * (len(study.datasets) > _MOST_CURVES)
    if left_out:
        yield f'<p class="note">Not drawn: {_text("; ".join(left_out))}.</p>'


def _hardest(contents: Contents) -> Iterable[str]:
    if contents.hardest:
        yield "<h2>Worst and best tasks</h2>"
        yield from (table_of(f"tasks {name}", name, contents) for name in contents.hardest)


def _method(contents: Contents) -> Iterable[str]:
    table = contents.table
    drawn = "every task by itself" if table.cluster is None else f"tasks of one {table.cluster} together"
    lines = [
        "A value is the mean over the seeds of the metric on the realistic ranks (the mean of the best and the worst "
        "rank among equal scores) unless its name says another rank type.",
        f"Intervals of {100 * table.confidence_level:g} % draw {drawn}. With several seeds they are Student's t with "
        "the variance of seeds x tasks (Owen 2007) and Welch-Satterthwaite degrees of freedom, so they speak of other "
        "seeds and other tasks; with one seed they speak of other tasks only (Hall's correction for skewness, for "
        "shares "
        "Wilson's).",
        "Chance is the exact expectation of the metric when every rank is uniform among the candidates of its task.",
        f"All {table.num_tests} pairs of models, on all data sets and metrics of the tables of values, are one family: "
        "min-P, step-down (Westfall and Young 1993), with the dependence of pairs on shared tasks. A model without a "
        "mark is worse than the best of its data set; one such claim or more is wrong with probability "
        f"{100 * (1 - table.confidence_level):.3g} % at most, as far as means of tasks are normal.",
    ]
    if table.margin is not None:
        lines.append(
            f"{WITHIN} marks a model of which every other of its data set is shown not to be better by the margin of "
            f"{table.margin:g} or more: one-sided tests of each other model, of which the largest p counts (Berger "
            "1982), all marks of the tables of values one family (Holm). It takes the margin as chosen beforehand."
        )
    if contents.averages is not None:
        lines.append(
            "Across data sets each counts once. An interval with data sets as the sample answers: what of other data "
            "sets of the kind? One with tasks as the sample answers: what of other tasks of these data sets? The "
            "second is far narrower, and no answer to the first. Pooled tasks would let the largest data set decide."
        )
    if contents.differences is not None:
        lines.append(
            "The average difference over other data sets is of random effects, by restricted maximum likelihood with "
            "the error of Hartung and Knapp."
        )
    yield "<h2>How each number was computed</h2>\n<ul>"
    yield from (f"<li>{_text(line)}</li>" for line in lines)
    yield "</ul>"


def _cards(study: RunStore, options: Options, contents: Contents) -> Iterable[str]:
    cards = [card_of(read) for name in study.datasets for read in study.dataset(name).reads]
    heads = ("file", "model", "data set", "seed", "tasks", "SHA-256 of its rows")
    rows = []
    for card in cards:
        names = (card["model"], card["dataset"], card["seed"], card["protocol"]["tasks"], card["sha256"][:16])
        rows.append((card["file"] or "in memory", *names))
    table = to_html(Tabular.named(heads, rows))
    yield (
        "<h2>Manifest</h2>\n<p>Who has the tables can check this page: <code>torchrankmetrics verify PAGE FOLDER"
        "</code> finds each by its path below the folder, and computes every number of the tables again.</p>\n"
        f'<details>\n<summary>{len(cards)} tables</summary>\n<div class="table">\n{table}\n</div>\n</details>'
    )
    content = {
        "manifest": VERSION,
        "versions": versions(),
        "metrics": [one.key for one in contents.table.measures],
        "confidence_level": options.confidence_level,
        "cluster": options.cluster,
        "margin": options.margin,
        "tasks": options.tasks,
        "triples": {
            name: {row.sample_id: row.triple for row in found.rows if row.triple is not None}
            for name, found in contents.hardest.items()
        },
        "models": study.models,
        "datasets": study.datasets,
        "tables": cards,
        "numbers": json.loads(contents.table.to_json()),
    }
    safe = json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")
    yield f'<script type="application/json" id="{CARDS}">{safe}</script>'
