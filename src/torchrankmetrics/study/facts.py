"""What a reader must know of a data set before its numbers: tasks, candidates, ties, and what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchrankmetrics.study.tasks import DataSet
from torchrankmetrics.table.columns import Columns


@dataclass(frozen=True)
class Facts:
    """Facts of a data set.

    Attributes:
        num_tasks: ranking tasks of its reference run.
        candidates: their smallest and largest number.
        sides: that occur.
        tie_rates: share of tasks in which the true candidate shares its score, by model, mean over seeds.
        warnings: what is wrong, or other than one would think.
    """

    num_tasks: int
    candidates: tuple[int, int]
    sides: tuple[str, ...]
    tie_rates: Mapping[str, float]
    warnings: tuple[str, ...]

    @property
    def words(self) -> str:
        """All of it in a line."""
        low, high = self.candidates
        among = f"{low}" if low == high else f"{low} to {high}"
        ties = sorted(100 * rate for rate in self.tie_rates.values())
        tied = f"{ties[0]:.1f} to {ties[-1]:.1f} %" if ties[-1] - ties[0] >= 0.05 else f"{ties[-1]:.1f} %"
        return "; ".join([f"{self.num_tasks} tasks among {among} candidates, {tied} ties", *self.warnings])


def facts_of(dataset: DataSet, seeds: Sequence[str]) -> Facts:
    """Look at all runs of a data set."""
    sample = dataset.reference.analysis.sample()
    counts = sample.candidate_counts.num_candidates
    rates, warnings = {}, list(dataset.misaligned)
    for model, reads in dataset.models.items():
        samples = [read.analysis.sample() for read in reads]
        rates[model] = sum(one.tie_mass / one.total for one in samples) / len(samples)
        there = [read.run.seed for read in reads]
        if lacking := [seed for seed in seeds if seed not in there]:
            warnings.append(f"{model} lacks seed {', '.join(lacking)}")
        nan = sum(read.analysis.num_nan for read in reads)
        if nan:
            warnings.append(f"{model} has NaN scores in {nan} tasks, which never help")
        sampled = sum(read.analysis.num_sampled for read in reads)
        if sampled:
            warnings.append(
                f"{model} was ranked among sampled candidates in {sampled} tasks: only mr and auc carry over"
            )
        for note in dict.fromkeys(note for read in reads for note in read.notes if "NaN" not in note):
            warnings.append(f"{model}: {note}")
        low = sum(int(Columns(read.analysis.rows).num_candidates.max()) == 1 for read in reads)
        if low:
            warnings.append(f"{model} has tasks of a single candidate only")
    low, high = int(counts[0]), int(counts[-1])
    sides = tuple(map(str, dataset.reference.analysis.sides))
    return Facts(sample.num_tasks, (low, high), sides, rates, tuple(warnings))
