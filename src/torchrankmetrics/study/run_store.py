"""The runs of a study: what is added and found, in which order, what is missing, and what has been read of it."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from torchrankmetrics.checks import check_choice
from torchrankmetrics.files import natural
from torchrankmetrics.study.run_files import find_files, paths_of
from torchrankmetrics.study.runs import Given, Run, rows_of_source, source_of
from torchrankmetrics.study.tasks import DataSet

_KEPT_ROWS = 1 << 22  # of the data sets read last: a quarter of a GiB


class RunStore:
    """Runs by model, data set and seed; files are read when they are needed."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, str], Run] = {}
        self._models: dict[str, None] = {}  # in their order
        self._datasets: dict[str, None] = {}
        self._read: OrderedDict[str, DataSet] = OrderedDict()

    def add(self, table: Given, *, model: str, dataset: str, seed: int | str = 0) -> None:
        """Add the ranks of a run.

        Args:
            table: a ``RankTable``, the path of a file of one, ``Ranks``, a ``RankCollection``, or what PyKEEN's
                pipeline or evaluation gives with a ``RankCollectionEvaluator``.
            model: name of the model.
            dataset: name of the data set.
            seed: of the training.

        Raises:
            OSError: if there is no such file.
            TypeError: if it holds no ranks.
            ValueError: if it has no ranking tasks, or the study has such a run.
        """
        source = source_of(table)
        file = source.as_posix() if isinstance(source, Path) else None
        if file is not None and (Path(file).is_absolute() or ".." in Path(file).parts):
            file = Path(file).name
        self.add_run(Run(str(model), str(dataset), str(seed), source, file, rows_of_source(source)))

    @classmethod
    def open(cls, pattern: str | os.PathLike[str], **names: str) -> Self:
        """Find the files of a pattern, such as ``runs/{dataset}/{model}/{seed}.npz``; or of .parquet, also as folders.

        Args:
            pattern: with the fields {dataset}, {model} and {seed}, each standing for anything but "/" (and as much of
                it as it can), and * for what does not matter. Only the headers of the files are read now.
            **names: model, dataset or seed, for a field that the pattern lacks; else "model", "data" and "0".

        Raises:
            OSError: if a file cannot be opened.
            ValueError: if no file matches, one is not of ranks, or two are of the same run.
        """
        study, said = cls(), {"model": "model", "dataset": "data", "seed": "0"} | names
        for name in names:
            check_choice("names", name, ("model", "dataset", "seed"))
        files = [(said | found.fields, found) for found in find_files(pattern)]
        study.arrange(*(sorted({names[part] for names, _ in files}, key=natural) for part in ("model", "dataset")))
        for names, found in files:
            study.add_run(Run(**names, source=found.path, file=found.below, num_rows=rows_of_source(found.path)))
        return study

    def arrange(self, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> None:
        """Put models and data sets in an order of your choice; those that are not named come after."""
        self._models = dict.fromkeys([*models, *self._models])
        self._datasets = dict.fromkeys([*datasets, *self._datasets])
        for name in self._datasets:
            self._forget(name)

    def add_run(self, run: Run) -> None:
        """Add a run whose source has been opened."""
        if not run.num_rows:
            raise ValueError(f"the ranks of {run.words} hold no ranking tasks")
        key = (run.model, run.dataset, run.seed)
        if key in self.runs:
            raise ValueError(f"there is a run of {run.words} already: give another seed=")
        self.runs[key] = run
        self._models.setdefault(run.model)
        self._datasets.setdefault(run.dataset)
        self._forget(run.dataset)

    @property
    def models(self) -> list[str]:
        """The models: in the order in which they came, of files as people count, or as arranged."""
        there = {run.model for run in self.runs.values()}
        return [name for name in self._models if name in there]

    @property
    def datasets(self) -> list[str]:
        """The data sets, likewise."""
        there = {run.dataset for run in self.runs.values()}
        return [name for name in self._datasets if name in there]

    @property
    def seeds(self) -> list[str]:
        """The seeds of all runs."""
        return sorted({run.seed for run in self.runs.values()}, key=natural)

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Pairs of a model and a data set without any run."""
        there = {(run.model, run.dataset) for run in self.runs.values()}
        return [(model, data) for data in self.datasets for model in self.models if (model, data) not in there]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        seeds = f" x {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        missing = f", {len(self.missing)} of these missing" if self.missing else ""
        shape = f"{len(self.models)} models x {len(self.datasets)} data sets{seeds}"
        return f"{type(self).__name__}({len(self)} tables: {shape}{missing})"

    def save(self, pattern: str | os.PathLike[str]) -> None:
        """Write every table to a file that the pattern names, such as ``runs/{dataset}/{model}/{seed}.npz`` (.parquet).

        The study then is of these files: its page names them.

        Raises:
            OSError: if a file cannot be written.
            ValueError: if two runs would have one file, or a name holds a "/".
        """
        paths = paths_of(pattern, [dict(zip(("model", "dataset", "seed"), key, strict=True)) for key in self.runs])
        for (key, run), (path, file) in zip(self.runs.items(), paths, strict=True):
            table = run.load()
            path.parent.mkdir(parents=True, exist_ok=True)
            table.save(path)
            self.runs[key] = replace(run, source=path, file=file)

    def dataset(self, name: str) -> DataSet:
        """The runs of a data set, read and aligned; those read last are kept.

        Raises:
            OSError, ValueError: if a file cannot be read.
        """
        check_choice("dataset", name, self.datasets)
        if name not in self._read:
            order = {model: i for i, model in enumerate(self.models)}
            runs = [run for run in self.runs.values() if run.dataset == name]
            self._read[name] = DataSet(name, sorted(runs, key=lambda run: (order[run.model], natural(run.seed))))
        self._read.move_to_end(name)
        while len(self._read) > 1 and sum(one.num_rows for one in self._read.values()) > _KEPT_ROWS:
            self._read.popitem(last=False)
        return self._read[name]

    def _forget(self, dataset: str) -> None:
        """Forget what was read of a data set."""
        self._read.pop(dataset, None)
