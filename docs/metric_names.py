"""Write the table that ``torchrankmetrics metrics`` prints without importing torch.

python docs/metric_names.py
"""

import csv
import io
from pathlib import Path

from torchrankmetrics.metrics.measure import VIEW_PREFIXES
from torchrankmetrics.metrics.names import as_measure
from torchrankmetrics.metrics.registry import all_names

FILE = Path(__file__).parents[1] / "src" / "torchrankmetrics" / "cli" / "metrics.csv"


def content() -> str:
    """Return names, kinds, directions, views and synonyms from the registry as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("metric", "of", "better", "views", "also"))
    for name, synonyms in all_names().items():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        kind = "queries" if measure.definition.of_tasks is None else "tasks"
        better = {True: "higher", False: "lower", None: ""}[measure.higher_is_better]
        views = zip(VIEW_PREFIXES, measure.with_views(*VIEW_PREFIXES), strict=True)
        writer.writerow(
            (
                name,
                kind,
                better,
                " ".join(view for view, one in views if one),
                " ".join(synonyms),
            )
        )
    return text.getvalue()


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8", newline="")
