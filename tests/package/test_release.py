"""The release has one version and one date in every file."""

import re

from scripts import ROOT
from torchrankmetrics import __version__

CITATION = (ROOT / "CITATION.cff").read_text()
CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_version_and_its_date_are_equal_in_every_file():
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]? - (\d{4}-\d\d-\d\d)$", CHANGES, re.MULTILINE)
    assert released == sorted(released, reverse=True)
    assert released[0][0] == __version__
    assert f"\nversion: {__version__}\ndate-released: {released[0][1]}\n" in CITATION
    readme = (ROOT / "README.md").read_text()
    assert f"version = {{{__version__}}}" in readme
    assert f"torchrankmetrics {__version__} |" in readme


def test_changes_are_under_standard_headings():
    for title in re.findall(r"^### (.*)$", CHANGES, re.MULTILINE):
        assert title in {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Renamed"}
