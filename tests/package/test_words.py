"""The words of the style guide: docs, docstrings, comments, messages and names avoid these patterns."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = {
    "software does not talk": r"\b(told|tells?|says?|said|asked|asks|speaks?)\b",
    "stored, is, replaces": r"\b(stands?|stood|held)\b",
    "is not a": r"\b(is|are|was|were) no (?!longer\b|more\b)\w+",
    "distribution, check, invariant": r"\blaws?\b",
    "permuted, sharded": r"\b(deals?|dealt)\b",
    "except, instead of": r"\b(but for|in the place of|the own)\b",
    "a noun instead of those": r"\b(as there|like what follows|those of|that of)\b",
    "a named subject": r"(^|[.;:] |, )[Ww]hat (is|was|has|are|follows|comes|a|the|they|it|goes)\b",
    "plain words": r"\b(rooms?|kin|mended|worked out|anew|for ever|by heart)\b",
}
NAMES = (
    r"^_?(asked|told|said|held|hold|holder|kept|shown|tally|looks|question|ways|picky|seen_as)(_|$)"
    r"|_(told|said|asked|held)$"
)
EXCEPTIONS = {
    "held-out",  # the term for data that are not trained on
    "held out",
    "standard deviation of those of",  # two nouns of one kind, both plural
}
MOST_PLACES, MOST_LONG_SENTENCES, LONG = 150, 40, 35


@cache
def texts() -> list[tuple[str, str]]:
    return list(_texts())


EXAMPLE = re.compile(r"^ *>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def _texts() -> Iterator[tuple[str, str]]:
    for path in [
        *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
        *ROOT.glob("docs/*.md"),
    ]:
        prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        yield path.name, re.sub(r"^\|.*$", "", prose, flags=re.MULTILINE)
    for path, source, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield f"{path}:{node.lineno}", EXAMPLE.sub("", node.value)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield f"{path}:{token.start[0]}", token.string


@cache
def modules() -> list[tuple[Path, str, ast.Module]]:
    paths = (ROOT / "src").rglob("*.py")
    sources = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}
    return [(path, source, ast.parse(source)) for path, source in sources.items()]


def test_few_places_use_words_that_the_style_guide_replaces() -> None:
    found = []
    for place, text in texts():
        for exception in EXCEPTIONS:
            text = text.replace(exception, "")
        for rule, pattern in PATTERNS.items():
            found += [
                f"{place}: {match[0].strip()!r} ({rule})"
                for match in re.finditer(pattern, text, re.MULTILINE)
            ]
    assert len(found) <= MOST_PLACES, "\n".join([f"{len(found)} places", *found])


def test_few_sentences_are_long() -> None:
    found = [
        f"{place}: {sentence[:80]}"
        for place, text in texts()
        for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(text.split()))
        if len(sentence.split()) > LONG
    ]
    assert len(found) <= MOST_LONG_SENTENCES, "\n".join([f"{len(found)} sentences", *found])


def test_names_are_words_of_the_field() -> None:
    found = set()
    for path, _, tree in modules():
        for node in ast.walk(tree):
            name = (
                getattr(node, "name", None)
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
                else None
            )
            name = node.arg if isinstance(node, ast.arg) else name
            name = (
                node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else name
            )
            if name and re.search(NAMES, name):
                found.add(f"{path}: {name}")
    assert not found, "\n".join(sorted(found))
