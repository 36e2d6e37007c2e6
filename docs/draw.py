"""Draw the pictures of a page: run its Python blocks in order and save ``fig`` at each picture.

python docs/draw.py docs/study.md docs/tutorial.md

``study_report.png`` is a screenshot of the page of docs/study.md in a browser, 900 x 1050.
"""

import doctest
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
PARTS = re.compile(
    r"^```python\n(?P<code>.*?)^```$|!\[[^\]]*\]\((?P<picture>images/(?!study_report)[^)]+)\)",
    re.MULTILINE | re.DOTALL,
)


def draw(page: Path) -> None:
    """Run the blocks of a page in one namespace; tests compare what they print, not this script."""
    names: dict[str, object] = {}
    for part in PARTS.finditer(page.read_text(encoding="utf-8")):
        if part["picture"]:
            names["fig"].savefig(
                page.parent / part["picture"], dpi=110, bbox_inches="tight"
            )  # type: ignore[attr-defined]
            print(page.parent / part["picture"])
            continue
        for example in doctest.DocTestParser().get_examples(part["code"]):
            if example.exc_msg is None:
                exec(compile(example.source, str(page), "single"), names)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        draw(Path(argument))
