"""How often is a model that is as good as the best left without a mark, and how often do the intervals of cells cover?

    python -m benchmarks.study_marks [--draws 400] [--workers 1] [--json PATH]      simulate, and print the table
    python -m benchmarks.study_marks --report                                       write it into docs/study.md

A study of 4 models on 3 data sets of 200 tasks each, with 1 or 3 training seeds. Ranks come from two of the populations
of `benchmarks.calibration`, the good and the ordinary model: normal scores are put through the quantiles of the
population. Of the variance of a score 0.6 is of the task, shared by all models, 0.02 of the training seed (with 3
seeds), the rest its own. "all equal": the four models are alike. "two best": the third and fourth have their scores
shifted by 0.3. The table is of MRR and hits@10: a family of 36 pairs. A false discovery is a model as good as the best
without a mark, on any of the data sets, by either metric: at most 5 % of the tables may have one. Power is the share of
the worse models without a mark. The truth of the intervals is the value on 10^6 ranks of the population.
"""

import json
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.calibration import NUM_CANDIDATES, quantile
from benchmarks.pages import parser_of, replaced, write_json
from scipy import special
from tqdm import tqdm

from torchrankmetrics import Ranks, RankTable, evaluate
from torchrankmetrics.study import RankStudy

RESULTS = Path(__file__).parent / "results" / "study_marks.json"
PAGE = Path(__file__).parents[1] / "docs" / "study.md"
BEGIN = "<!-- begin: python -m benchmarks.study_marks --report -->\n"
MODELS, DATASETS, TASKS, METRICS = 4, 3, 200, ("mrr", "hits_at_10")
OF_TASK, OF_SEED, SHIFT = 0.6, 0.02, 0.3
CELLS = list(product(("good", "ordinary"), (1, 3), ("all equal", "two best")))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="simulate nothing, write the committed results into docs")
    given = parser.parse_args()
    if given.report:
        PAGE.write_text(replaced(PAGE.read_text(), table(json.loads(RESULTS.read_text())), BEGIN))
        return
    with ProcessPoolExecutor(given.workers) as pool:
        rows = list(tqdm(pool.map(partial(cell, given.draws), range(len(CELLS))), total=len(CELLS)))
    results = {"draws": given.draws, "rows": rows}
    print(table(results))
    write_json(given.json, results)


def cell(draws: int, number: int) -> dict[str, Any]:
    """All draws of one kind of study."""
    torch.set_num_threads(1)
    population, seeds, kind = CELLS[number]
    shifts = [0.0, 0.0, *(0.0 if kind == "all equal" else SHIFT for _ in range(MODELS - 2))]
    truth = {shift: true_values(population, shift) for shift in set(shifts)}
    false = worse = found = covered = intervals = 0
    for draw in range(draws):
        study = drawn(population, seeds, shifts, np.random.default_rng([number, draw]))
        told = study.table(METRICS)
        wrong = 0
        for (key, model, _), one in told.cells.items():
            shift = shifts[int(model)]
            unmarked = one.p_best <= 0.05
            wrong += unmarked and shift == 0
            worse, found = worse + (shift > 0), found + (unmarked and shift > 0)
            covered += one.low <= truth[shift][key] <= one.high
            intervals += 1
        false += wrong > 0
    return {
        "population": population,
        "seeds": seeds,
        "models": kind,
        "false discoveries": false / draws,
        "power": found / worse if worse else None,
        "coverage": covered / intervals,
    }


def drawn(population: str, seeds: int, shifts: list[float], rng: np.random.Generator) -> RankStudy:
    """A study of models whose normal scores are shifted."""
    study = RankStudy()
    of_seed = OF_SEED if seeds > 1 else 0.0
    for dataset in range(DATASETS):
        task = rng.normal(size=TASKS)
        for model, shift in enumerate(shifts):
            for seed in range(seeds):
                own = math.sqrt(1 - OF_TASK - of_seed) * rng.normal(size=TASKS)
                scores = math.sqrt(OF_TASK) * task + math.sqrt(of_seed) * rng.normal() + own + shift
                ranks = Ranks(quantile(population, special.ndtr(scores)), None, NUM_CANDIDATES)
                table = RankTable.from_ranks(ranks, sample_id=torch.arange(TASKS))
                study.add(table, model=str(model), dataset=str(dataset), seed=seed)
    return study


def true_values(population: str, shift: float) -> dict[str, float]:
    """Values on a million ranks of the population."""
    even = (np.arange(1_000_000) + 0.5) / 1_000_000
    return evaluate(quantile(population, special.ndtr(special.ndtri(even) + shift)), NUM_CANDIDATES, list(METRICS))


def table(results: dict[str, Any]) -> str:
    """In per cent, with the standard error of the false discoveries at 5 %."""
    draws = results["draws"]
    error = 100 * math.sqrt(0.05 * 0.95 / draws)
    lines = [
        f"{draws} tables a line (standard error {error:.1f} at 5 %), all in %:\n",
        "| population | seeds | models | tables with a false discovery | power | coverage of 95 % intervals |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for row in results["rows"]:
        shares = [row[key] for key in ("false discoveries", "power", "coverage")]
        texts = ["" if share is None else f"{100 * share:.1f}" for share in shares]
        lines.append(f"| {row['population']} | {row['seeds']} | {row['models']} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
