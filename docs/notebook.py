"""Run a script of cells (``# %%``) and write it next to itself as an executed notebook.

The function ``page`` makes a page of such a notebook.

python docs/notebook.py examples/scores_to_table.py
"""

import base64
import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

CELL = re.compile(r"^# %%(?P<markdown> \[markdown\])?\n", re.MULTILINE)


def executed(script: Path) -> dict[str, Any]:
    """Run the cells in one namespace; return them with output and figures (notebook format 4.5)."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")  # figures of the caller are not of the notebook
    _, *parts = CELL.split(script.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    for number, (markdown, text) in enumerate(
        zip(parts[::2], parts[1::2], strict=True)
    ):
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
        if markdown:
            prose = "\n".join(
                line.removeprefix("#").removeprefix(" ")
                for line in text.strip().splitlines()
            )
            cells.append(
                {
                    "cell_type": "markdown",
                    **cell,
                    "source": prose.splitlines(keepends=True),
                }
            )
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, f"{script.name}, cell {number}", "exec"), names)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            lines = printed.getvalue().splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
        for figure in map(plt.figure, plt.get_fignums()):
            buffer = io.BytesIO()
            figure.savefig(
                buffer, dpi=80, bbox_inches="tight", metadata={"Software": None}
            )
            picture = base64.b64encode(buffer.getvalue()).decode()
            outputs.append(
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"image/png": picture},
                }
            )
        plt.close("all")
        count = 1 + sum(one["cell_type"] == "code" for one in cells)
        source = text.strip().splitlines(keepends=True)
        cells.append(
            {
                "cell_type": "code",
                **cell,
                "execution_count": count,
                "source": source,
                "outputs": outputs,
            }
        )
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def page(notebook: Path) -> str:
    """Write the cells and their outputs as Markdown."""
    parts: list[str] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(
            source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        )
        for output in cell.get("outputs", []):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text'])}```")
            else:
                parts.append(
                    f"![what the cell draws](data:image/png;base64,{output['data']['image/png']})"
                )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for argument in map(Path, sys.argv[1:]):
        text = json.dumps(executed(argument), indent=1, ensure_ascii=False) + "\n"
        argument.with_suffix(".ipynb").write_text(text, encoding="utf-8")
