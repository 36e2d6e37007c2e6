"""The table of docs/scale.md from the results of ``python -m benchmarks``: it is written from the JSON, never by hand.

python -m benchmarks.table
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.pages import replaced

_SHOWN = ("counting", "epoch", "scale", "full_evaluation", "certified")
RESULTS = [Path(__file__).parent / "results" / f"{name}.json" for name in _SHOWN]
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN = "<!-- begin: python -m benchmarks.table -->\n"


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(), tables(), BEGIN))


def tables() -> str:
    """All committed results, one table each."""
    return "\n".join(table(json.loads(path.read_text())) for path in RESULTS)


def table(results: dict[str, Any]) -> str:
    """Markdown: one line per way of ours, with the floor and the peers of the same case and number of threads."""
    about = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    lines = [
        f"Milliseconds, best of the runs, then median and quartiles; {about}.",
        "",
        "| case | threads | ours | best | median (quartiles) | ours / floor | peer / ours |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = results["rows"]
    for row in rows:
        if row["role"] != "ours":
            continue
        beside = [other for other in rows if (other["case"], other["threads"]) == (row["case"], row["threads"])]
        floors = [other["best"] for other in beside if other["role"] == "floor"]
        peers = [f"{other['best'] / row['best']:.1f} ({other['way']})" for other in beside if other["role"] == "peer"]
        memory = [f"; peak {row['peak_gib']:.2f} GiB" for _ in (1,) if "peak_gib" in row]
        memory += [f", {row['extra_mib']:.1f} MiB more than before" for _ in (1,) if "extra_mib" in row]
        spread = f"{row['median']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        cells = [row["case"], str(row["threads"]), row["way"] + "".join(memory), f"{row['best']:.2f}", spread]
        lines.append(
            "| " + " | ".join([*cells, f"{row['best'] / min(floors):.2f}" if floors else "", "; ".join(peers)]) + " |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
