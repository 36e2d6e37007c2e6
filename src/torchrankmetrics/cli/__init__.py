"""The command line ``torchrankmetrics``: runs a command, prints errors and notes, exit codes."""

import io
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence

from torchrankmetrics.errors import RankMetricWarning
from torchrankmetrics.validation import visible


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    The code is 0; 1 if a check failed (``verify``, ``--fail-if``, ``--fail-under``); 2 for invalid
    input, with one line on stderr; or 130 for Ctrl-C.
    """
    if arguments is None and len(sys.argv) == 1:
        arguments = ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack characters of a table
        sys.stdout.reconfigure(errors="backslashreplace")
    options: dict[str, str] = {}
    try:
        from torchrankmetrics.cli.app import app, options_of

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RankMetricWarning)
            parsed = app(args=arguments, prog_name="torchrankmetrics", standalone_mode=False)
            code: int = 0  # of --help
            if callable(parsed):
                options = options_of(parsed.func.__name__)
                code = parsed()
        print(end="", flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit):  # the reader of the pipe has exited; click exits then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if (message := _message(error)) is None:
            raise
        text = _with_options(" ".join(message.split()), options)
        print(f"error: {visible(text)}", file=sys.stderr)
        return 2
    for note in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"note: {visible(_with_options(note, options))}", file=sys.stderr)
    return code


def _with_options(text: str, options: Mapping[str, str]) -> str:
    """Replace arguments in a message, as ``max_bytes=9``, by options, as ``--max-bytes 9``."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        own = options.get(name) or options.get(name.removesuffix("s"))
        if own is None:
            return found[0]
        if value == "None":
            return f"no {own}"
        return f"{own} {value.strip(chr(39))}" if value else own

    # not in a path, such as runs/side=head/a.npz, or in a list of values
    text = re.sub(r"(?<![\w./\\-])([a-z_]+)=('\w*'|None|\d+)?(?![\w./\\'=-])", option, text)
    # "num_candidates must be ..."
    return re.sub(r"^([a-z_]+)()(?= must )", option, text)


def _message(error: Exception) -> str | None:
    """Describe invalid input; None for an error that is a fault of the package."""
    if isinstance(error, ModuleNotFoundError) and error.name == "click":
        return "the command line needs click: pip install 'torchrankmetrics[cli]'"
    if isinstance(error, OSError):
        name = error.filename if error.filename2 is None else error.filename2
        return str(error) if name is None else f"{name}: {error.strerror}"
    if isinstance(error, OverflowError | MemoryError):
        return f"a number or a file is too large: {error or type(error).__name__}"
    if hasattr(error, "format_message"):  # of click
        context = getattr(error, "ctx", None)
        commands = ", ".join(getattr(context and context.command, "commands", ()))
        help_text = f"see {context.command_path if context else 'torchrankmetrics'} --help"
        return f"{error.format_message()} ({help_text}{f'; commands: {commands}' * bool(commands)})"
    is_input = isinstance(error, ValueError | TypeError | IndexError) or "pip install" in str(error)
    return str(error) if is_input else None
