"""The commands in one application, and what becomes of errors and warnings."""

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

from torchrankmetrics.cli.adjust import adjust_command, candidates_command, datasets_command, metrics_command
from torchrankmetrics.cli.ranks import compare_command, report_command
from torchrankmetrics.cli.study import audit_command, study_command, verify_command
from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.version import __version__

INTERRUPTED = 130


def _examples(text: str) -> str:
    """Leave the lines of examples as they are, which click would break."""
    return re.sub(r"`(torchrankmetrics [^`]*)`", "\b\n\\1", text)


app = typer.Typer(
    name="torchrankmetrics",
    help=_examples(
        "Rank-based metrics from saved ranks, and published numbers against chance.\n\n"
        "An adjusted index is 0 at chance and 1 at the optimum, for the filtered candidates of each task; a z-score "
        "says how sure it is that there is skill at all, and grows with the number of tasks.\n\n"
        "Start with\n\n"
        "`torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`\n\n"
        "`torchrankmetrics report ranks.npz --view base,adjusted_index --confidence-level 0.95`\n\n"
        "What is wrong with an input is told in one line, with exit code 2, and nothing is written."
    ),
    epilog="Ranks are saved with RankTable.save (docs/cli.md#file-format). Metric names may be synonyms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would take longer to import than all else
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"torchrankmetrics {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


for name, command in (
    ("report", report_command),
    ("compare", compare_command),
    ("study", study_command),
    ("verify", verify_command),
    ("adjust", adjust_command),
    ("datasets", datasets_command),
    ("candidates", candidates_command),
    ("audit", audit_command),
    ("metrics", metrics_command),
):
    app.command(name, help=_examples(inspect.getdoc(command) or ""))(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command: what is wrong with its input is told in one line, exit code 2; warnings are notes on stderr."""
    with warnings.catch_warnings(record=True) as caught, _standard_streams():
        warnings.simplefilter("always", RankMetricWarning)
        try:
            code = app(args=arguments, prog_name="torchrankmetrics", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader, head say, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (ValueError, TypeError, IndexError, OSError) as error:
            return _fail(_os_message(error) if isinstance(error, OSError) else str(error))
        except (OverflowError, MemoryError) as error:
            return _fail(f"a number or a file is too large: {error or type(error).__name__}")
        except ImportError as error:  # of an extra that a file needs
            if "pip install" not in str(error):
                raise
            return _fail(str(error))
        except typer.Abort:
            code = INTERRUPTED
        except Exception as error:
            usage = getattr(error, "format_message", None)  # typer has its own copy of click, or click's own
            if usage is None:
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                print(usage(), file=sys.stderr)
                return 2
            context = getattr(error, "ctx", None)
            path = "torchrankmetrics" if context is None else context.command_path
            return _fail(f"{usage()} (see {path} --help)")
    if code == INTERRUPTED:  # typer makes an exit code of Ctrl-C
        raise KeyboardInterrupt
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"note: {message}", file=sys.stderr)
    return code if isinstance(code, int) else 0


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


def _os_message(error: OSError) -> str:
    name = error.filename if error.filename2 is None else error.filename2
    return f"{name}: {error.strerror}" if name is not None else str(error)


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2
