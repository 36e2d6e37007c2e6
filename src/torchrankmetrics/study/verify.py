"""Whether the numbers of a page are those of the ranks: its tables are found again, and all is computed once more."""

import json
import math
import os
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

from torchrankmetrics.checks import check_int
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.selection import Metrics, Selection
from torchrankmetrics.rendering import Cell, Column, Rendered, Tabular
from torchrankmetrics.study.cards import VERSION, card_of, versions
from torchrankmetrics.study.options import Options, measures_of
from torchrankmetrics.study.page import CARDS, table_of
from torchrankmetrics.study.rank_study import RankStudy, contents_of
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.views import VIEWS

_DRAWN = 1e-3  # p-values of drawn families move with the rounding of the machine
_KEYS = ("manifest", "metrics", "confidence_level", "cluster", "models", "datasets", "tables", "numbers")


@dataclass(frozen=True)
class Difference:
    """Something that the page says and the ranks do not; ``kind`` is "table", "number" or "shown"."""

    kind: str
    where: str
    page: Any
    ranks: Any


@dataclass(frozen=True, eq=False)
class Verification(Rendered):
    """What was checked, and what differs: true if nothing does.

    Attributes:
        differences: in the order of the page.
        num_tables, num_numbers, num_shown: how many tables, numbers behind the page and cells on it were looked at.
        notes: what a reader must know.
    """

    differences: tuple[Difference, ...]
    num_tables: int
    num_numbers: int
    num_shown: int
    notes: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.differences

    def tabular(self) -> Tabular:
        """What differs, before it is written."""
        columns = [
            Column("kind", key=True),
            Column("where", key=True),
            Column("page", digits=9),
            Column("ranks", digits=9),
        ]
        rows: list[list[Cell]] = [[one.kind, one.where, one.page, one.ranks] for one in self.differences]
        return Tabular(columns, rows, self.notes)


def verify(report: str | os.PathLike[str], folder: str | os.PathLike[str], *, metrics: Metrics = ()) -> Verification:
    """Check a page that ``RankStudy.report`` wrote against tables of ranks.

    Every table is found by the path in its entry and compared by its digest; then every number is computed again and
    compared, those in the page's data and those that are shown in its tables.

    Args:
        report: the HTML file.
        folder: below which the tables lie as the manifest says.
        metrics: that have no name to find them by, as they were given to ``report``.

    Raises:
        OSError: if the page cannot be read.
        ValueError: if it is no such page, or its manifest is damaged.
    """
    path, base = Path(report), Path(folder)
    if not base.is_dir():
        raise ValueError(f"folder must be one of rank tables, {os.fspath(folder)!r} is none")
    page = _Page(_text_of(path))
    content = _cards(page, path)
    study, differing, missing = _found(content, base)
    notes = _versions(content)
    selection = Selection(VIEWS, "realistic", "both", DEFAULT_EXPECTATION)  # the page says the view
    known = {one.key: one for one in selection.measures(metrics).values()}
    measures = [_measure(key, known) for key in content["metrics"]]
    numbers = shown = 0
    if missing:
        notes += ["As tables are missing, no number was computed again."]
    else:
        study.arrange(content["models"], content["datasets"])
        options = _options(content, measures)
        contents = contents_of(study, options)
        ours = json.loads(contents.table.to_json())
        numbers = sum(isinstance(value, int | float) for row in ours for value in row.values())
        differing += _numbers(content["numbers"], ours)
        for name in contents.tables:
            mine = _Page(table_of(name, "", contents)).tables[name]
            shown += len(mine)
            differing += _shown(name, page.tables.get(name, []), mine)
        for name in page.tables.keys() - contents.tables.keys():
            differing.append(Difference("shown", f"table {name}", "there", None))
    agree = "agree" if not differing else f"{len(differing)} of these differ"
    notes.insert(0, f"{len(content['tables'])} tables, {numbers} numbers and {shown} shown cells: {agree}.")
    return Verification(tuple(differing), len(content["tables"]), numbers, shown, tuple(notes))


def _options(content: dict[str, Any], measures: list[Measure]) -> Options:
    """What the page was asked for; names of tasks are taken from it, as ranks have none."""
    try:
        triples = {
            name: {int(i): tuple(triple) for i, triple in told.items()}
            for name, told in content.get("triples", {}).items()
        }
        tasks = check_int("tasks", content.get("tasks", 0), 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the manifest of the page is damaged: names of tasks, {error}") from error
    known = {name: told for name, told in triples.items() if told}
    return Options(
        tuple(measures), content["confidence_level"], content["cluster"], content.get("margin"), tasks, known
    )


class _Page(HTMLParser):
    """The cards of a page, and the cells of its tables by name."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.cards: str | None = None
        self.tables: dict[str, list[str]] = {}
        self._depth = 0  # of elements inside a table that is told
        self._name, self._inside, self._script = "", False, False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script":
            self._script = given.get("id") == CARDS
        elif tag == "section" and given.get("data-table") is not None:
            self._name = given["data-table"] or ""
            self.tables[self._name] = []
        elif self._name and (tag in ("th", "td") or given.get("class") == "note"):
            self.tables[self._name].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self._name = ""
        if tag in ("th", "td", "p"):
            self._inside = False
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.cards = (self.cards or "") + data
        elif self._name and self._inside:
            self.tables[self._name][-1] += data


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no page of a study: it is no UTF-8 text") from error


def _cards(page: _Page, path: Path) -> dict[str, Any]:
    if page.cards is None:
        raise ValueError(f"{path} is no page of a study: it has no manifest (RankStudy.report writes them)")
    try:
        content = json.loads(page.cards)
    except ValueError as error:
        raise ValueError(f"the manifest of {path} is damaged: {error}") from error
    if not isinstance(content, dict) or (lost := [key for key in _KEYS if key not in content]):
        raise ValueError(f"the manifest of {path} is damaged: it lacks {', '.join(lost or _KEYS)}")
    if content["manifest"] != VERSION:
        raise ValueError(f"the manifest of {path} has version {content['manifest']!r}; this library reads {VERSION}")
    kinds = {
        "tables": list,
        "numbers": list,
        "metrics": list,
        "models": list,
        "datasets": list,
        "confidence_level": float,
    }
    if wrong := [key for key, kind in kinds.items() if not isinstance(content[key], kind)]:
        raise ValueError(f"the manifest of {path} is damaged: {', '.join(wrong)} of another type")
    for card in content["tables"]:
        if not isinstance(card, dict) or not {"model", "dataset", "seed", "file", "sha256", "protocol"} <= card.keys():
            raise ValueError(f"the manifest of {path} is damaged: an entry lacks its names, file or digest")
    return content


def _found(content: dict[str, Any], base: Path) -> tuple[RankStudy, list[Difference], bool]:
    """A study of the tables that are there, and what is wrong with tables; whether one is missing."""
    study, differing, missing = RankStudy(), [], False
    for card in content["tables"]:
        names = {part: str(card[part]) for part in ("model", "dataset", "seed")}
        where = f"{names['model']} on {names['dataset']}, seed {names['seed']}"
        file = card["file"]
        if file is None:
            differing.append(Difference("table", where, "in memory", "no file"))
            missing = True
            continue
        inside = PurePosixPath(str(file))
        if inside.is_absolute() or ".." in inside.parts:
            raise ValueError(f"the manifest names the file {file!r}: it must be a path below the folder")
        try:
            study.add(base / inside, **names)
        except (OSError, ValueError) as error:
            differing.append(Difference("table", str(file), card["sha256"][:16], str(error)))
            missing = True
    if not missing:
        known = [read for name in study.datasets for read in study.dataset(name).reads]
        reads = {(read.run.model, read.run.dataset, read.run.seed): read for read in known}
        for card in content["tables"]:
            ours = card_of(reads[card["model"], card["dataset"], card["seed"]])
            if ours["sha256"] != card["sha256"]:
                differing.append(Difference("table", card["file"], card["sha256"][:16], ours["sha256"][:16]))
            elif ours["protocol"] != card["protocol"]:
                differing.append(Difference("table", card["file"], str(card["protocol"]), str(ours["protocol"])))
    return study, differing, missing


def _versions(content: dict[str, Any]) -> list[str]:
    said, ours = content.get("versions", {}), versions()
    other = [f"{name} {said.get(name)} there, {mine} here" for name, mine in ours.items() if said.get(name) != mine]
    return [f"The page was computed by other versions: {'; '.join(other)}."] if other else []


def _measure(key: str, known: dict[str, Measure]) -> Measure:
    if key in known:
        return known[key]
    try:
        return measures_of([key], None)[0]
    except ValueError as error:
        raise ValueError(f"the page is of the metric {key!r}, which has no name here: pass it in metrics=") from error


def _numbers(page: list[Any], ours: list[dict[str, Any]]) -> list[Difference]:
    """Numbers behind the page that differ."""
    said = {(row.get("metric"), row.get("model"), row.get("dataset")): row for row in page if isinstance(row, dict)}
    found = []
    for row in ours:
        key = (row["metric"], row["model"], row["dataset"])
        there = said.pop(key, {})
        for name, value in row.items():
            if not _same(there.get(name), value, _DRAWN if name == "p_best" else 0.0):
                where = f"{row['metric']} of {row['model']} on {row['dataset']}: {name}"
                found.append(Difference("number", where, there.get(name), value))
    return found + [Difference("number", " ".join(map(str, key)), "there", None) for key in said]


def _same(a: Any, b: Any, absolute: float) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=max(absolute, 1e-12))
    return bool(a == b)


def _shown(name: str, page: list[str], ours: list[str]) -> list[Difference]:
    """Cells on the page that differ."""
    if len(page) != len(ours):
        return [Difference("shown", f"table {name}", f"{len(page)} cells", f"{len(ours)} cells")]
    pairs = enumerate(zip(page, ours, strict=True), 1)
    return [Difference("shown", f"table {name}, cell {i}", a, b) for i, (a, b) in pairs if a != b]
