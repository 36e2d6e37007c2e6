"""The application: its commands, made of functions with their options as parameters."""

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from torchrankmetrics.cli.compare import compare
from torchrankmetrics.cli.counts import adjust, datasets, metrics
from torchrankmetrics.cli.report import report
from torchrankmetrics.cli.study import study, verify
from torchrankmetrics.version import __version__


def _help(function: Callable[..., object]) -> str:
    """Protect examples in a docstring from being wrapped."""
    text = re.sub(r"(?m)^(For example|Start with)$", "\b\n\\1", inspect.getdoc(function) or "")
    return re.sub(r"`(torchrankmetrics [^`]*)`", "  \\1", text)


def _type(annotation: Any) -> Any:
    """Return the type of an option in click, for the items of a list too."""
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    if parts := get_args(annotation):  # X | None, list[X], Sequence[X]
        return _type(parts[0])
    return click.Path(path_type=Path) if annotation is Path else annotation


def _command(function: Callable[..., int]) -> click.Command:
    """Make a command of a function whose parameters are annotated by ``opt`` and ``arg``.

    The command returns a call of the function: click would print a line for Ctrl-C inside a
    command.
    """
    params = []
    for name, one in inspect.signature(function).parameters.items():
        annotation, (declare, names, settings) = get_args(one.annotation)
        presence = {"required": True} if one.default is one.empty else {"default": one.default}
        names = names or ["--" + name.replace("_", "-")] * (declare is click.Option)
        params.append(
            declare([*names, name], **{"type": _type(annotation), **presence, **settings})
        )
    return click.Command(
        function.__name__, callback=partial(partial, function), params=params, help=_help(function)
    )


def options_of(command: str) -> dict[str, str]:
    """Options of a command by the names of its parameters."""
    params = app.commands[command].params
    return {str(one.name): one.opts[0] for one in params if isinstance(one, click.Option)}


def _main() -> None:
    """Metrics, intervals and comparisons of saved ranks or TREC runs; published numbers adjusted.

    An adjusted index is 0 for guessing and 1 for perfect ranks, whatever the numbers of
    candidates; a z-score grows with the number of tasks.

    Start with
    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`
    `torchrankmetrics report ranks.npz --view base,adjusted_index --confidence-level 0.95`

    Invalid input prints one line and exits with code 2; then nothing is written.
    """


app = click.version_option(__version__, message="%(prog)s %(version)s")(
    click.Group(
        commands=[
            _command(one) for one in (report, compare, study, verify, adjust, datasets, metrics)
        ],
        help=_help(_main),
        epilog="RankTable.save and CSV files store ranks. Metric names may be synonyms.",
        context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    )
)
