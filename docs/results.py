"""The measured part of the Benchmarks page: the docstring of every benchmark, and its results as a table."""

import ast
import json
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
OWN_PAGE = {
    "comparable": "comparable.md",
    "case_study": "small_graphs.md",
    "audit": "audit.md#results-for-other-evaluators",
    "calibration": "benchmarks.md#coverage-and-size",
    "foundation": "ultra.md",
}
_DIGITS = 4


def sections(folder: Path = BENCHMARKS) -> str:
    """Write a section per script that can be run, in Markdown."""
    written = []
    for script in sorted(folder.glob("*.py")):
        source = script.read_text(encoding="utf-8")
        if "__main__" not in source:
            continue  # not a benchmark
        about = ast.get_docstring(ast.parse(source)) or ""
        title, _, method = about.partition("\n")
        parts = [
            f"## {script.stem.replace('_', ' ').capitalize()}",
            title,
            f"```text\n{method.strip()}\n```",
        ]
        if script.stem in OWN_PAGE:
            parts.append(
                f"Results: [{OWN_PAGE[script.stem]}]({OWN_PAGE[script.stem]})."
            )
        else:
            results = [
                folder / "results" / f"{script.stem}.json",
                *folder.glob(f"results/{script.stem}_*.json"),
            ]
            parts += [table(path) for path in sorted(results) if path.exists()]
        written.append("\n\n".join(parts))
    return "\n\n".join(written) + "\n"


def table(path: Path) -> str:
    """Write the rows of a results file as a Markdown table, with the machine above it."""
    results = json.loads(path.read_text(encoding="utf-8"))
    rows = results.get("rows", []) if isinstance(results, dict) else results
    machine = results.get("machine", {}) if isinstance(results, dict) else {}
    columns = list(
        dict.fromkeys(
            key
            for row in rows
            for key, cell in row.items()
            if not isinstance(cell, dict | list)
        )
    )
    if not rows or not columns:
        return f"`{path.name}` is in the repository."
    lines = [
        f"`{path.name}`"
        + "".join(f", {key} {value}" for key, value in machine.items()),
        "",
    ]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += [
        "| " + " | ".join(_text(row.get(column)) for column in columns) + " |"
        for row in rows
    ]
    return "\n".join(lines)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return (
        f"{cell:.{_DIGITS}g}"
        if isinstance(cell, float)
        else str(cell).replace("|", "\\|")
    )
