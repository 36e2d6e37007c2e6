"""What commands share: options, files of ranks, one table as output, and progress on stderr."""

import codecs
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from torchrankmetrics.files import write_whole
from torchrankmetrics.rendering import Tabular, writers
from torchrankmetrics.validation import Choice, check_choice, shown

if TYPE_CHECKING:
    from torchrankmetrics.table.rank_table import RankTable


def input_path(path: Path | None) -> Path | None:
    """Read - as the standard input."""
    return Path("/dev/stdin") if path is not None and str(path) == "-" else path


def _cluster(name: str | None) -> str | None:
    return None if name is None else check_choice("--cluster", name, ("group", "sample_id"))


FirstArgument = Annotated[
    Path,
    typer.Argument(
        help="Ranks of the first model (.npz or .parquet), a folder with a file per training run, or -.",
        callback=input_path,
    ),
]
SecondArgument = Annotated[Path, typer.Argument(help="Ranks of the second, of the same tasks.", callback=input_path)]
MetricsOption = Annotated[str, typer.Option("--metric", "-m", help="Metrics, separated by commas.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="What is drawn together: group or sample_id (both sides of a triple).", callback=_cluster
    ),
]
EntitiesOption = Annotated[
    str, typer.Option("--entities", help="Of all, train: only entities of train are candidates (as in PyKEEN).")
]
MaxBytesOption = Annotated[
    int, typer.Option("--max-bytes", help="Refuse a file of ranks that would take more memory.", min=1)
]


SUFFIXES = (".npz", ".parquet")


def files_of(path: Path) -> list[Path]:
    """Give the tables of a folder, .npz or Parquet, by name; or the path itself, of a file or a folder of one table.

    Raises:
        ValueError: if the folder has none.
    """
    from torchrankmetrics.table.parquet import is_one_table

    if not path.is_dir() or is_one_table(path):
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files:
        raise ValueError(f"{path} is a folder without .npz files or Parquet: expected one per training run")
    return files


def load(path: Path, max_bytes: int) -> "RankTable | list[RankTable]":
    """Load a table, or every table of a folder."""
    from torchrankmetrics.table.rank_table import RankTable

    files = files_of(path)
    tables = [RankTable.load(file, max_bytes=max_bytes) for file in files]
    return tables[0] if files == [path] else tables


Item = TypeVar("Item")


class Format(StrEnum):
    """How a result is written."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    latex = "latex"
    html = "html"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="For people, programs or papers; without it as --output ends, or table."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write there instead of printing; written whole or not at all.")
]
_SUFFIXES = {
    ".csv": Format.csv,
    ".json": Format.json,
    ".md": Format.markdown,
    ".tex": Format.latex,
    ".html": Format.html,
}


FragmentOption = Annotated[
    bool, typer.Option("--fragment", help="Of HTML, write the <table> alone instead of a whole page.")
]


def emit(table: Tabular, form: Format | None, output: Path | None, *, title: str = "", fragment: bool = False) -> None:
    """Print a table, or write it to a file; CSV and JSON have all digits, their notes go to stderr.

    HTML is a whole page if ``title`` is given, unless ``fragment`` is true.

    Raises:
        ValueError: if the file cannot be written, or is one of ranks.
    """
    if output is not None and str(output) == "-":
        output = None
    form = _form(form, output)
    if fragment and form is not Format.html:
        raise ValueError("--fragment would do nothing: it is of --format html")
    if form is Format.html and title and not fragment:
        text = writers.page(title, table)
    else:
        text = _written(table, form, output is not None)
    if form in (Format.csv, Format.json):
        for note in table.notes:
            typer.echo(note, err=True)
    if output is None:
        sys.stdout.write(text)  # click's echo takes an ASCII terminal for one of UTF-8
        return
    try:
        write_whole(output, text.encode("utf-8"))
    except OSError as error:  # typer would take a broken pipe for one of stdout
        raise ValueError(f"{output}: cannot write: {error.strerror}") from error


def _written(table: Tabular, form: Format, to_file: bool) -> str:
    match form:
        case Format.csv:
            return writers.to_csv(table)
        case Format.json:
            utf8 = to_file or codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
            return writers.to_json(table, ascii_only=not utf8)
        case Format.table:  # what is piped is not broken into blocks
            wide = to_file or not sys.stdout.isatty()
            return writers.to_text(table, None if wide else shutil.get_terminal_size().columns) + "\n"
    papers = {Format.markdown: writers.to_markdown, Format.latex: writers.to_latex, Format.html: writers.to_html}
    return papers[form](table, {"labels": {}}) + "\n"


def _form(form: Format | None, output: Path | None) -> Format:
    suffix = "" if output is None else output.suffix.lower()
    if suffix in (".npz", ".parquet"):
        raise ValueError(f"--output must not end in {suffix}, which files of ranks do; got {output}")
    told = _SUFFIXES.get(suffix)
    if told is not None and form not in (None, told):
        typer.echo(f"note: {output} is written as {form}, not {told}: --format says so", err=True)
    return form or told or Format.table


def watch(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """Go through items with a progress bar on stderr, if somebody is there to see it."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, label, total, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show on stderr that something takes its time, if somebody is there to see it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label):
        yield


def split_list(text: str, option: str) -> list[str]:
    """Read a comma-separated list.

    Raises:
        ValueError: if there is nothing between two commas.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{option} must be names separated by commas, such as mrr,hits@10; got {shown(text)}")
    return parts


def given(context: typer.Context, *names: str) -> list[str]:
    """Which options, by parameter name, the user has given, as written on the command line: none is to be ignored."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    return [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def refuse(options: Sequence[str], why: str) -> None:
    """Refuse options that would do nothing.

    Raises:
        ValueError: if there are any.
    """
    if options:
        raise ValueError(f"{', '.join(options)} would do nothing: {why}")


def choices_of(text: str, option: str, choices: Sequence[Choice]) -> list[Choice]:
    """Read a comma-separated list of choices."""
    return [check_choice(option, part, choices) for part in split_list(text, option)]
