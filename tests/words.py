"""Check the words of docs, docstrings, comments, messages and names.

``python tests/words.py`` lists the places.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
EXAMPLE = re.compile(r"^ *>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
EXCEPTIONS = {
    "held-out",  # the term for data that are not trained on
    "held out",
    "standard deviation of those of",  # two nouns of one kind, both plural
}
MOST_PLACES = 100
MOST_LONG_SENTENCES = 30
LONG = 35
Text = tuple[str, int, str]  # path, line, text


def main() -> int:
    texts = [*_prose(), *_source_texts()]
    names = list(_names())
    words = [place for text in texts for place in _words(*text)]
    sentences = [place for text in texts for place in _long_sentences(*text)]
    return max(
        _report("names that are not words of the field", names, 0),
        _report("places with words that have a plainer one", words, MOST_PLACES),
        _report(f"sentences of more than {LONG} words", sentences, MOST_LONG_SENTENCES),
    )


def _report(title: str, places: list[str], most: int) -> int:
    """Print the places and the files with most of them, if too many; return the exit status."""
    if len(places) <= most:
        return 0
    files = Counter(place.partition(":")[0] for place in places)
    print(*places, sep="\n")
    print(f"{len(places)} {title}, at most {most}; by file:")
    for file, number in files.most_common(10):
        print(f"  {number:4} {file}")
    return 1


def _prose() -> Iterator[Text]:
    """Paragraphs of the pages, without code and tables."""
    named = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")]
    for path in [*named, *sorted(ROOT.glob("docs/*.md"))]:
        text = path.read_text(encoding="utf-8")
        for pattern in (
            r"^```.*?^```",
            r"^\|.*?$",
        ):  # with as many empty lines, to keep the numbers
            text = re.sub(pattern, _emptied, text, flags=re.DOTALL | re.MULTILINE)
        line = 1
        for paragraph in re.split(r"(\n\n+)", text):
            yield str(path.relative_to(ROOT)), line, paragraph
            line += paragraph.count("\n")


def _emptied(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _modules() -> Iterator[tuple[str, str, ast.Module]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        yield str(path.relative_to(ROOT)), source, ast.parse(source)


def _source_texts() -> Iterator[Text]:
    """Docstrings, messages and comments."""
    for path, source, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield path, node.lineno, EXAMPLE.sub(_emptied, node.value)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield path, token.start[0], token.string


def _words(path: str, line: int, text: str) -> Iterator[str]:
    for exception in EXCEPTIONS:
        text = text.replace(exception, "")
    for rule, pattern in PATTERNS.items():
        for match in re.finditer(pattern, text, re.MULTILINE):
            at = line + text[: match.start()].count("\n")
            yield f"{path}:{at}: {match[0].strip()!r} ({rule})"


def _long_sentences(path: str, line: int, text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(text.split())):
        if len(sentence.split()) > LONG:
            yield f"{path}:{line}: {sentence[:80]}"


def _names() -> Iterator[str]:
    """Names of functions, classes, parameters and variables that the style guide replaces."""
    for path, _, tree in _modules():
        found = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node.lineno
            elif isinstance(node, ast.arg):
                found[node.arg] = node.lineno
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = node.lineno
        yield from (f"{path}:{found[name]}: {name}" for name in found if re.search(NAMES, name))


if __name__ == "__main__":
    sys.exit(main())
