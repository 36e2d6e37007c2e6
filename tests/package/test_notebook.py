"""The notebook is what its script gives: its cells, what they print, and as many pictures."""

import json
from typing import Any

import pytest

from scripts import EXAMPLES, ROOT, load_script

pytest.importorskip("matplotlib", reason="the notebook draws: pip install 'torchrankmetrics[plot]'")
pytest.importorskip("pykeen", reason="the notebook reads a graph that comes with pykeen")
notebook = load_script(ROOT / "docs" / "notebook.py")
SCRIPT = EXAMPLES / "scores_to_table.py"


def without_pixels(document: dict[str, Any]) -> dict[str, Any]:
    """Pixels differ between releases of matplotlib; that there is a picture does not."""
    for cell in document["cells"]:
        for output in cell.get("outputs", []):
            if "data" in output:
                assert output["data"]["image/png"].startswith("iVBORw0KGgo")
                output["data"] = "PNG"
    return document


def test_executed_notebook_is_that_of_its_script() -> None:
    saved = json.loads(SCRIPT.with_suffix(".ipynb").read_text(encoding="utf-8"))
    document = without_pixels(notebook.executed(SCRIPT))
    assert document == without_pixels(saved), "run python docs/notebook.py examples/scores_to_table.py"
    drawn = sum(
        output["output_type"] == "display_data" for cell in saved["cells"] for output in cell.get("outputs", [])
    )
    assert drawn == 2
