"""The application: its commands, each a function whose docstring is the help."""

import inspect
import re
from typing import Annotated

import typer

from torchrankmetrics.cli.counts import adjust, datasets, metrics
from torchrankmetrics.cli.output import opt
from torchrankmetrics.cli.ranks import compare, report, study, verify
from torchrankmetrics.version import __version__


def _version(requested: bool) -> None:
    if requested:
        print(f"torchrankmetrics {__version__}")
        raise typer.Exit


_Version = Annotated[bool, opt("Show the version and exit.", "--version", callback=_version, is_eager=True)]


def _main(version: _Version = False) -> None:
    """Compute rank-based metrics of saved ranks, and adjust published numbers for chance.

    An adjusted index is 0 under random ranking and 1 at the optimum, whatever the numbers of candidates; a z-score
    grows with the number of tasks.

    Start with
    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`
    `torchrankmetrics report ranks.npz --view base,adjusted_index --confidence-level 0.95`

    Invalid input prints one line and exits with code 2; then nothing is written.
    """


def _help(function: object) -> str:
    """Protect examples in a docstring from being wrapped."""
    text = re.sub(r"(?m)^(For example|Start with)$", "\b\n\\1", inspect.getdoc(function) or "")
    return re.sub(r"`(torchrankmetrics [^`]*)`", "  \\1", text)


app = typer.Typer(
    name="torchrankmetrics",
    help=_help(_main),
    epilog="RankTable.save and CSV files store ranks (docs/cli.md#file-format). Metric names may be synonyms.",
    callback=_main,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _function in (report, compare, study, verify, adjust, datasets, metrics):
    app.command(help=_help(_function))(_function)
