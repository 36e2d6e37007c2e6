"""Files of ranks by a pattern that names what their paths say: runs/{dataset}/{model}/{seed}.npz."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchrankmetrics.checks import shortened, shown
from torchrankmetrics.files import natural

FIELDS = ("dataset", "model", "seed")
_PART = re.compile(r"\{(\w*)\}|(\*)")


@dataclass(frozen=True)
class Found:
    """A file, its path below the folder that the pattern begins with, and what the fields stand for."""

    path: Path
    below: str
    fields: dict[str, str]


def find_files(pattern: str | os.PathLike[str]) -> list[Found]:
    """Find the files of a pattern, and folders *.parquet, in the order in which people count (seed 2 before seed 10).

    A field, and ``*``, stands for anything but "/", and takes as much as it can; a field that comes twice stands for
    the same.

    Raises:
        ValueError: if a field is unknown, there is none, or no file matches.
    """
    base, parts = _split(pattern)
    found = [
        Found(path, "/".join(names), fields)
        for path, names, fields in _matching(base, parts, (), {})
        if path.is_file() or path.suffix == ".parquet"  # which engines write as folders
    ]
    if not found:
        raise ValueError(f"no file matches {shown(os.fspath(pattern))}{_there(base)}")
    return sorted(found, key=lambda one: natural(one.below))


def paths_of(pattern: str | os.PathLike[str], runs: Sequence[dict[str, str]]) -> list[tuple[Path, str]]:
    """Path of the file of each run, and that below the folder that the pattern begins with.

    Raises:
        ValueError: if the pattern does not tell the runs apart, or a name cannot be part of a path.
    """
    base, parts = _split(pattern)
    if "*" in "/".join(parts):
        raise ValueError(f"pattern must not hold * where files are written, got {shown(os.fspath(pattern))}")
    for name in (name for run in runs for name in run.values()):
        if "/" in name or name in ("", ".", ".."):
            raise ValueError(f"the name {shown(name)} cannot be part of a path: add the run under another name")
    below = ["/".join(parts).format(**run) for run in runs]
    if len(set(below)) < len(runs):
        raise ValueError(
            f"pattern must tell all runs apart, as runs/{{dataset}}/{{model}}/{{seed}}.npz does; got {pattern}"
        )
    return [(base / name, name) for name in below]


def _split(pattern: str | os.PathLike[str]) -> tuple[Path, list[str]]:
    """The folder that a pattern begins with, and the components of the rest."""
    text = os.fspath(pattern)
    unknown = [match[1] for match in _PART.finditer(text) if match[2] is None and match[1] not in FIELDS]
    if unknown or not any(f"{{{field}}}" in text for field in FIELDS):
        got = f"the unknown field {{{shortened(unknown[0])}}}" if unknown else "no field"
        raise ValueError(
            f"pattern may name {{dataset}}, {{model}} and {{seed}}, at least one; got {got} in {shown(text)}"
        )
    first = _PART.search(text)
    assert first is not None
    folder = text[: text.rfind("/", 0, first.start()) + 1]
    return Path(folder or "."), text[len(folder) :].split("/")


def _matching(
    folder: Path, parts: list[str], names: tuple[str, ...], fields: dict[str, str]
) -> Iterator[tuple[Path, tuple[str, ...], dict[str, str]]]:
    """Files below a folder that the rest of a pattern describes."""
    if not parts:
        yield folder, names, fields
        return
    first, *rest = parts
    if _PART.search(first) is None:
        if (folder / first).exists():
            yield from _matching(folder / first, rest, (*names, first), fields)
        return
    expression = re.compile(_expression(first, fields), re.DOTALL)  # names may hold line breaks
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := expression.fullmatch(entry.name):
            yield from _matching(entry, rest, (*names, entry.name), fields | match.groupdict())


def _expression(part: str, known: dict[str, str]) -> str:
    """One component of the pattern as a regular expression."""
    out, end, seen = "", 0, set[str]()
    for match in _PART.finditer(part):
        out += re.escape(part[end : match.start()])
        field, end = match[1], match.end()
        if field is None:
            out += ".*"
        elif field in known:
            out += re.escape(known[field])
        else:
            out += f"(?P={field})" if field in seen else f"(?P<{field}>.+)"
            seen.add(field)
    return out + re.escape(part[end:])


def _there(base: Path) -> str:
    if not base.is_dir():
        return f": there is no folder {str(base)!r}"
    names = sorted((entry.name + "/" * entry.is_dir() for entry in base.iterdir()), key=natural)
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"; {str(base)!r} holds {shown or 'nothing'}"
