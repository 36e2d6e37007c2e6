"""What evaluators of other packages do with the cases of ``torchrankmetrics.audit``.

    pip install -c constraints.txt -e '.[audit]'
    python -m benchmarks.audit [--only NAME ...]     writes results/audit.json and the tables of docs/audit.md
    python -m benchmarks.audit --report              writes the tables from the results that are there

Each evaluator is called as its package documents, by the few lines of ``benchmarks/evaluators.py``. What is not
installed is left out and named.
"""

import argparse
import datetime
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from benchmarks.evaluators import PEERS
from benchmarks.pages import replaced

from torchrankmetrics import __version__, rank_scores
from torchrankmetrics.audit import Report, audit
from torchrankmetrics.audit.auditor import MAX_CANDIDATES
from torchrankmetrics.audit.laws import LAWS

RESULTS = Path(__file__).parent / "results" / "audit.json"
PAGE = Path(__file__).parents[1] / "docs" / "audit.md"
BEGIN = "<!-- begin: python -m benchmarks.audit -->\n"
SIGNS = {"passed": "+", "failed": "**failed**", "error": "**error**", "skipped": "skipped"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these evaluators again, the others as they are")
    parser.add_argument("--report", action="store_true", help="ask nobody, write the tables of the results")
    given = parser.parse_args()
    if not given.report:
        RESULTS.write_text(json.dumps(results(given.only), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), tables(load()), BEGIN), encoding="utf-8")


def load() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def results(only: list[str] | None) -> dict[str, Any]:
    then = load() if only else {"rows": [], "left_out": []}
    before = {row["name"]: row for row in then["rows"]}
    rows: list[dict[str, Any]] = []
    missing = [gone for gone in then["left_out"] if gone["name"] not in (only or ())]
    for name, distribution, make, what, most in PEERS:
        if only and name not in only:
            rows += [before[name]] if name in before else []
            continue
        try:
            number = version(distribution)
            evaluator = make()
        except (PackageNotFoundError, ImportError) as error:
            missing.append({"name": name, "distribution": distribution, "why": str(error)})
            continue
        report = audit(evaluator, max_candidates=MAX_CANDIDATES if most is None else most)
        print(f"{name} {number}\n{report}\n", flush=True)
        rows.append(row_of(name, f"{distribution} {number}", what, report))
    if only is None or "torchrankmetrics" in only:
        ours = audit(lambda scores, target, exclude: rank_scores(scores, target, exclude=exclude).realistic)
        rows.append(row_of("torchrankmetrics", f"torchrankmetrics {__version__}", "`rank_scores`", ours))
    elif "torchrankmetrics" in before:
        rows.append(before["torchrankmetrics"])
    machine = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    return {"machine": machine, "rows": rows, "left_out": missing}


def row_of(name: str, package: str, what: str, report: Report) -> dict[str, Any]:
    return {"name": name, "package": package, "asked": what} | report.to_dict()


def tables(results: dict[str, Any]) -> str:
    """Markdown: who was asked, law by law, and the smallest case of all that did not pass."""
    rows = results["rows"]
    about = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    lines = [
        f"Asked: {about}.",
        "",
        "| evaluator | package | what is called | ties | passed | failed | error | skipped |",
    ]
    lines.append("|---|---|---|---|--:|--:|--:|--:|")
    for row in rows:
        counts = [sum(law["status"] == status for law in row["laws"]) for status in SIGNS]
        rule = " or ".join(row["ties"]) or "no one rule"
        lines.append(f"| {row['name']} | {row['package']} | {row['asked']} | {rule} | " + _cells(counts))
    lines += [
        "",
        *(f"Left out: {gone['name']} ({gone['distribution']} is not installed)." for gone in results["left_out"]),
    ]
    lines += ["", "| law | what it says |", "|---|---|", *(f"| `{law.name}` | {law.says} |" for law in LAWS)]
    lines += [
        "",
        "`+`: passed.",
        "",
        "| law | " + _cells(row["name"] for row in rows),
        "|---|" + "---|" * len(rows),
    ]
    for law in LAWS:
        found = [next(finding for finding in row["laws"] if finding["law"] == law.name) for row in rows]
        lines.append(f"| `{law.name}` | " + _cells(SIGNS[finding["status"]] for finding in found))
    lines += ["", "| evaluator | law | smallest case | answer | right |", "|---|---|---|---|---|"]
    for row in rows:
        for law in row["laws"]:
            if law["status"] in ("failed", "error") or law["case"]:
                lines.append(f"| {row['name']} | `{law['law']}` | {law['case']} | " + _cells(answer(law)))
    return "\n".join(lines) + "\n"


def answer(law: dict[str, Any]) -> tuple[str, str]:
    """What was answered and what is right; of an error its words."""
    if law["status"] != "failed":
        return law["message"].replace("|", "\\|"), ""
    more = f" ({law['message']})" if law["message"] else ""
    return f"{law['quantity']} {_number(law['got'])}", f"{_number(law['expected'])}{more}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _cells(cells: Any) -> str:
    return " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
