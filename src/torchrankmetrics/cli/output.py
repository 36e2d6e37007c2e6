"""Options that several commands share, and how commands read lists and print results."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import click

from torchrankmetrics.files import write_whole
from torchrankmetrics.rendering import Tabular
from torchrankmetrics.rendering.tabular import render
from torchrankmetrics.validation import check_choice, shorten, visible
from torchrankmetrics.version import __version__

Format = Literal["table", "csv", "json", "markdown", "latex", "html"]


def opt(text: str, *names: str, **settings: Any) -> Any:
    """Declare an option by its help text; without names it is named after the parameter."""
    return click.Option, names, {"help": text, **settings}


def arg(text: str, **settings: Any) -> Any:
    """Declare an argument by its help text."""
    return click.Argument, (), {"help": text, **settings}


Level = Annotated[float, opt("Confidence level of intervals and tests.")]
Cluster = Annotated[
    Literal["auto", "sample_id", "query", "group", "none"],
    opt("Dependent tasks; auto: both sides of a triple, else the tasks of a query."),
]

Digits = Annotated[
    int | None, opt("Decimals of printed numbers; default: 4.", type=click.IntRange(0))
]

_SUFFIXES = dict(
    zip((".txt", ".csv", ".json", ".md", ".tex", ".html"), get_args(Format), strict=True)
)


def _checked(
    context: click.Context, parameter: click.Parameter, output: Path | None
) -> Path | None:
    """Set the format by the suffix of the output first of all; "-" is the standard output."""
    suffix = "" if output is None else output.suffix.lower()
    form = context.params["form"]
    if suffix in (".npz", ".parquet"):
        raise ValueError(
            f"--output must not end in {suffix}, the suffix of files of ranks; got {output}"
        )
    if form is None and suffix not in ("", *_SUFFIXES):
        raise ValueError(
            f"--output must end in {', '.join(_SUFFIXES)}, or --format must be given; got {output}"
        )
    context.params["form"] = form or _SUFFIXES.get(suffix, "table")
    return None if str(output) == "-" else output


Form = Annotated[
    Format | None,
    opt("Format; default: suffix of --output, or table.", "--format", "-f", is_eager=True),
]
Output = Annotated[
    Path | None,
    opt("File to write; default: standard output.", "--output", "-o", callback=_checked),
]


def emit(
    table: Tabular,
    form: Form,
    output: Output,
    title: str = "",
    failed: Sequence[str] = (),
    **about: Any,
) -> int:
    """Print a table or write it to a file, and return the exit code.

    Notes on CSV and JSON, and failed checks, go to stderr.

    HTML is a whole page if ``title`` is given. ``about`` has fields of the JSON object
    (page "Command line").
    """
    if form == "json":
        fields = {
            "version": __version__,
            "files": [],
            "tasks": None,
            "confidence_level": None,
            **about,
        }
        text = json.dumps({**fields, "rows": json.loads(table.to_json())}, indent=2) + "\n"
    elif form == "csv":
        text = str(table.to_csv())
    elif form == "html" and title:
        text = render("rendering/page.html", title=title, table=table) + "\n"
    elif form == "table":  # only a terminal breaks wide tables into blocks
        narrow = output is None and sys.stdout is not None and sys.stdout.isatty()
        text = table.to_text(shutil.get_terminal_size().columns if narrow else None) + "\n"
    else:
        text = f"{getattr(table, f'to_{form}')()}\n"
    if output is None:
        print(text, end="")
    else:
        try:
            write_whole(output, text.encode("utf-8"))
        except OSError as error:  # a broken pipe must not be treated as that of stdout
            raise ValueError(f"{output}: cannot write: {error.strerror}") from error
    if form in ("csv", "json"):
        for note in table.notes:
            print(visible(note), file=sys.stderr)
    if failed:
        print(f"failed: {visible('; '.join(failed))}", file=sys.stderr)
    return int(bool(failed))


def reject(why: str, **given: object) -> None:
    """Raise a ValueError if one of these options was given, because it would have no effect."""
    if names := [
        f"--{name.replace('_', '-')}"
        for name, one in given.items()
        if not (one is None or one is False)
    ]:
        raise ValueError(f"{', '.join(names)} would do nothing {why}")


def split_lists(
    texts: Sequence[str], option: str, choices: Sequence[Any] | None = None
) -> list[Any]:
    """Split comma-separated lists; ValueError for an empty part, or one not among the choices."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise ValueError(
            f"{option} must be names separated by commas, such as mrr,hits@10; got "
            f"{shorten(','.join(texts))}"
        )
    if choices is None:
        return parts
    return [check_choice(option, part, choices) for part in parts]


def argument_of_cluster(option: str) -> Any:
    """Argument cluster= of an option."""
    return None if option == "none" else option


def with_digits(table: Tabular, digits: int | None) -> Tabular:
    """Print numbers with so many decimals; CSV and JSON have all digits."""
    if digits is None:
        return table
    columns = [replace(column, digits=digits) for column in table.columns]
    return replace(table, columns=columns)
