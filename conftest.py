"""Every Python block of docs/ is executed, top to bottom, one namespace per page."""

import math
import re
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

collect_ignore = ["docs/conf.py"]  # Sphinx's, which the extra "docs" brings
NUMBER = re.compile(r"[-+]?\d+\.\d*(?:e[-+]?\d+)?")


class Numbers(OutputChecker):
    """Numbers with a decimal point may differ from the page by a share; other text may not."""

    def __init__(self, share: float) -> None:
        self.share = share

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Compare as doctest does, with the page's number in the place of one that is near it."""
        wanted = NUMBER.findall(want)
        if len(wanted) == len(NUMBER.findall(got)):
            left = iter(wanted)
            got = NUMBER.sub(lambda found: self._text(next(left), found[0]), got)
        return super().check_output(want, got, optionflags)

    def _text(self, want: str, got: str) -> str:
        return want if math.isclose(float(want), float(got), rel_tol=self.share) else got


def pages(share: float, **which: object) -> Sybil:
    """Execute these pages, and compare their numbers within a share."""
    parser = PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
    parser.doctest_parser.evaluator.runner._checker = Numbers(share)
    return Sybil(parsers=[parser, SkipParser()], **which)


TRAINS = "tutorial.md"  # a trained model differs between machines
pytest_collect_file = (
    pages(1e-9, patterns=["docs/*.md"], excludes=[f"docs/{TRAINS}"])
    + pages(0.1, patterns=[f"docs/{TRAINS}"])
).pytest()
