"""The application: its commands, exit codes, and how errors and warnings are printed."""

import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Annotated

import typer

from torchrankmetrics.cli.options import COMMANDS, Command
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.version import __version__


def _examples(text: str) -> str:
    """Protect the lines of examples from being wrapped by click."""
    return re.sub(r"`(torchrankmetrics [^`]*)`", "\b\n\\1", text)


app = typer.Typer(
    name="torchrankmetrics",
    help=_examples(
        "Compute rank-based metrics of saved ranks, and adjust published numbers for chance.\n\n"
        "An adjusted index is 0 under random ranking and 1 at the optimum, whatever the numbers of candidates; a "
        "z-score grows with the number of tasks.\n\n"
        "Start with\n\n"
        "`torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`\n\n"
        "`torchrankmetrics report ranks.npz --view base,adjusted_index --confidence-level 0.95`\n\n"
        "Invalid input prints one line and exits with code 2; then nothing is written."
    ),
    epilog="RankTable.save and CSV files store ranks (docs/cli.md#file-format). Metric names may be synonyms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"torchrankmetrics {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


_LAST = ("max_bytes", "fragment", "form", "output")  # in the help
for _name, _command in COMMANDS.items():
    _fields = inspect.signature(_command).parameters.values()
    shared = sorted(_fields, key=lambda field: field.name in _LAST)
    _command.__signature__ = inspect.Signature(shared)  # type: ignore[attr-defined]
    app.command(_name, help=_examples(inspect.getdoc(_command) or ""))(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; invalid input prints one line and returns 2, warnings become notes on stderr."""
    with warnings.catch_warnings(record=True) as caught, _standard_streams():
        warnings.simplefilter("always", RankMetricWarning)
        try:
            command = app(args=arguments, prog_name="torchrankmetrics", standalone_mode=False)
            code = command.run() if isinstance(command, Command) else 0  # no command after --help and --version
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the pipe has exited
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            name = error.filename if error.filename2 is None else error.filename2
            return _fail(str(error) if name is None else f"{name}: {error.strerror}")
        except (ValueError, TypeError, IndexError) as error:
            return _fail(str(error))
        except (OverflowError, MemoryError) as error:
            return _fail(f"a number or a file is too large: {error or type(error).__name__}")
        except ImportError as error:
            if "pip install" not in str(error):
                raise
            return _fail(str(error))
        except typer.Abort:
            raise KeyboardInterrupt from None
        except Exception as error:
            usage = getattr(error, "format_message", None)  # of typer's copy of click, or of click
            if usage is None:
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                print(usage(), file=sys.stderr)
                return 2
            context = getattr(error, "ctx", None)
            path = "torchrankmetrics" if context is None else context.command_path
            return _fail(f"{usage()} (see {path} --help)")
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"note: {message}", file=sys.stderr)
    return code


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Discard output to closed streams, which are None; escape characters that the encoding of stdout lacks."""
    with ExitStack() as stack:
        for name, redirect in (("stdout", redirect_stdout), ("stderr", redirect_stderr)):
            if getattr(sys, name) is None:
                stack.enter_context(redirect(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        stream = sys.stdout
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stack.callback(stream.reconfigure, errors=stream.errors)
            stream.reconfigure(errors="backslashreplace")
        yield


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2
