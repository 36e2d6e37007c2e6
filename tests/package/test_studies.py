"""The studies on real graphs, in small settings: entity alignment by test size, link prediction and random ranking."""

import json
import os
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from scripts import EXAMPLES, ROOT, fork_script, load_script

pytestmark = pytest.mark.slow

EXPLORE = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
ALIGNMENT = EXAMPLES / "entity_alignment.py"
pytest.importorskip("matplotlib", reason="the studies draw: pip install 'torchrankmetrics[plot]'")


def case_study() -> ModuleType:
    return load_script(ROOT / "benchmarks" / "case_study.py")


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000


# --- entity alignment -------------------------------------------------------------------------------------------------


def test_only_amri_stays_when_the_test_set_grows(tmp_path: Path) -> None:
    output = fork_script(
        ALIGNMENT, "--splits", "3", "--sizes", "6", "--steps", "10", "--dim", "32", "--out", tmp_path / "new"
    )
    assert len(re.findall(r"^split \d: 180 seeds", output, re.MULTILINE)) == 3
    values = json.loads((tmp_path / "new" / "entity_alignment.json").read_text())
    assert len(values["sizes"]) == 6
    assert values["sizes"][-1] == 10 * values["sizes"][0] == 420

    def mean(kind: str, metric: str) -> np.ndarray:
        return np.mean([[row[metric] for row in split[kind]] for split in values["splits"]], axis=0)

    growth = {
        metric: mean("trained", metric)[-1] / mean("trained", metric)[0] for metric in values["splits"][0]["trained"][0]
    }
    assert growth["amri"] == pytest.approx(1, abs=0.04)
    assert growth["mr"] > 2
    assert growth["mrr"] < 0.93
    assert growth["adjusted_mrr"] < 0.93
    assert growth["z_mr"] > 2.5
    assert growth["z_mrr"] > 2.5
    assert mean("trained", "amri").min() > 0.8
    assert abs(mean("untrained", "amri")[-1]) < 0.15
    assert mean("untrained", "mr")[-1] > 5 * mean("untrained", "mr")[0]
    for split in values["splits"]:
        assert split["whole"]["test"]["tail_hits_at_1"] > split["whole"]["all"]["tail_hits_at_1"] >= 0.2
    assert is_picture(tmp_path / "new" / "entity_alignment.png")


# --- the case study ---------------------------------------------------------------------------------------------------


@pytest.mark.trains
def test_the_case_study_writes_runs_and_p_values(tmp_path: Path) -> None:
    pytest.importorskip("pykeen", reason="Nations and Kinships come with pykeen")
    path = tmp_path / "runs.json"
    models = ("--models", "untrained", "ComplEx", *(["TransE", "RotatE", "TuckER"] if EXPLORE else []))
    options = ("--json", path, "--plot", tmp_path / "new" / "a.png", "--dim", "16", "--epochs", "1")
    output = fork_script("-m", "benchmarks.case_study", *options, *models)
    assert is_picture(tmp_path / "new" / "a.png")
    runs = {(run["graph"], run["model"]): run for run in json.loads(path.read_text())}
    assert set(runs) == {(graph, model) for graph in ("nations", "kinships") for model in models[1:]}
    for (graph, model), values in runs.items():
        assert values["tasks"] == {"nations": 402, "kinships": 2148}[graph]
        if model == "untrained":
            assert abs(values["z_mrr"]) < 4
            assert -3 < values["log10_p_mrr"] < 0
    printed = re.findall(r"^  (nations|kinships) +(\w+) +0\.\d{4}  p = (\S+): (yes|no)$", output, re.MULTILINE)
    assert len(printed) == 2 * (len(runs) - 2)  # the models trained here, and those of the paper
    for graph, model, _, answer in printed[: len(runs) - 2]:
        assert answer == ("yes" if runs[graph, model]["log10_p_mrr"] <= np.log10(0.05) else "no")
