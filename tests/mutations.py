"""Break central lines one at a time; the tests must notice: python tests/mutations.py [NAME ...].

Each mutation is applied to a copy of ``src``. The script exits with 0 only if the tests pass
without a mutation and fail with each of them. The tests that run are the ones named below, a part
of the suite.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


# a line that occurs once in src, its broken form, and the tests that must fail
MUTATIONS = {
    "counting in torch: ties count as better": (
        "better = ~(value <= reference)",
        "better = ~(value < reference)",
        "tests/ranking/test_rank_scores.py",
    ),
    "counting in Numba: NaN is ignored": (
        "nan += _num_nan(line, marks, infinity)",
        "nan += 0",
        "tests/ranking/test_counting.py tests/ranking/test_rank_scores.py",
    ),
    "counting: the target is a candidate of itself": (
        "inside & (entry != column[task])",
        "inside & (entry == entry)",
        "tests/ranking/test_rank_scores.py",
    ),
    "ties: tie blocks lose their weights": (
        "return float((blocks.mass * mean).sum() / sample.total)",
        "return float((blocks.count * mean).sum() / sample.total)",
        "tests/invariants/test_invariants.py",
    ),
    "weights: the null variance takes v instead of v squared": (
        "float((share * counts.weight * variance).sum())",
        "float((share * variance).sum())",
        "tests/null/test_expectation.py",
    ),
    "views: the adjusted index has the scale of M / E": (
        "return mean, (best - mean) * (variance != 0)",
        "return mean, mean * (variance != 0)",
        "tests/invariants/test_invariants.py",
    ),
    "p-values: from optimistic ranks": (
        'float(self._aggregate(sample, "pessimistic")[0])',
        'float(self._aggregate(sample, "optimistic")[0])',
        "tests/invariants/test_p_values.py",
    ),
    "sync: rows of the other processes are dropped": (
        "rows = RowBuffer([torch.cat(parts)], self.updates)",
        "rows = RowBuffer([parts[0]], self.updates)",
        "tests/metrics/test_sync.py",
    ),
    "sync: repeated sample ids count twice": (
        "return result.T[:, ~repeat].T, int(repeat.sum())",
        "return result, int(repeat.sum())",
        "tests/metrics/test_sync.py tests/invariants/test_invariants.py",
    ),
    "queries: equal queries count once": (
        "distinct.count[:] = np.add.reduceat(queries.count[order], np.flatnonzero(first))",
        "distinct.count[:] = 1",
        "tests/invariants/test_queries.py",
    ),
    "intervals: the quantile is one-sided": (
        "x = float(student.ppf((1 + level) / 2, units.freedom))",
        "x = float(student.ppf(level, units.freedom))",
        "tests/inference/test_intervals.py",
    ),
    "comparisons: random flips without the observed sum": (
        "return float((sampled + reached.sum()) / (sampled + len(reached)))",
        "return float(reached.sum() / len(reached))",
        "tests/inference/test_compare_models.py tests/inference/test_compare.py",
    ),
    "sequential: the bets forget the units seen": (
        "expected = (drawn.total * mean - seen) / left",
        "expected = mean + 0 * left",
        "tests/sequential/test_sequences.py",
    ),
    "files: blocks of known triples are not compared with their digests": (
        "if self._right.all():",
        "if True:",
        "tests/kg/test_known_files.py",
    ),
}


def tests_pass(source: Path, tests: str) -> bool:
    """Run tests on a copy of the package."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests.split(),
    ]
    environment = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode == 0


def mutate(source: Path, old: str, new: str) -> None:
    """Replace the line in the one file that has it."""
    files = [path for path in source.rglob("*.py") if old in path.read_text(encoding="utf-8")]
    if len(files) != 1 or (text := files[0].read_text(encoding="utf-8")).count(old) != 1:
        sys.exit(f"{old!r} must occur once in src, found in {[path.name for path in files]}")
    files[0].write_text(text.replace(old, new), encoding="utf-8")


def main() -> None:
    """Check the tests without a mutation, then each mutation."""
    chosen = {name: MUTATIONS[name] for name in sys.argv[1:] or MUTATIONS}
    survived = []
    if not tests_pass(
        ROOT / "src",
        " ".join({path: None for *_, tests in chosen.values() for path in tests.split()}),
    ):
        sys.exit("the tests fail without a mutation")
    for name, (old, new, tests) in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "src")
            shutil.copytree(ROOT / "src", source)
            mutate(source, old, new)
            found = not tests_pass(source, tests)
        print(f"{'found' if found else 'SURVIVED'}: {name}", flush=True)
        survived += [] if found else [name]
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
