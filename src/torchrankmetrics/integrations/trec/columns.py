"""Columns of frames, records and files with a header: query, document and value."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torchrankmetrics.validation import truncate

Kind = Literal["qrels", "run"]

# names in TREC, ir_measures, PyTerrier, ranx, BEIR, MTEB, MS MARCO, RecBole, recommenders and
# RecTools; in lower case, with "_" for "-"
QUERY = ("query_id", "qid", "q_id", "query", "user_id", "userid", "user", "uid")
DOCUMENT = (
    *("doc_id", "docno", "docid", "document_id", "document", "corpus_id", "pid"),
    *("item_id", "itemid", "item", "iid"),
)
VALUE = {
    "qrels": ("relevance", "label", "rel", "rating", "score", "weight"),
    "run": ("score", "prediction", "rating", "rank"),
}


class RunColumns(NamedTuple):
    """Places of the columns, and how a value is read."""

    query: int
    document: int
    value: int | None  # None: every row has a relevant document
    sign: int  # -1: a rank, of which 1 is best


def find_columns(names: Sequence[str], kind: Kind, where: str) -> RunColumns:
    """Find the columns of qrels or a run by their names; an error names those that were found."""
    plain = [_plain(name) for name in names]
    query, document, value = (_first(words, plain) for words in (QUERY, DOCUMENT, VALUE[kind]))
    if query is None or document is None or (value is None and kind == "run"):
        found = truncate(", ".join(map(str, names)), 200)
        needed = f"query_id (or user_id), doc_id (or item_id) and {' or '.join(VALUE[kind][:4])}"
        raise ValueError(f"{where}: {kind} needs the columns {needed}; found {found}")
    is_rank = value is not None and plain[value] == "rank"
    return RunColumns(query, document, value, -1 if is_rank else 1)


def is_header(fields: Sequence[str]) -> bool:
    """Whether fields are names of columns, among them a query and a document."""
    plain = [_plain(field) for field in fields]
    return _first(QUERY, plain) is not None and _first(DOCUMENT, plain) is not None


def _plain(name: object) -> str:
    # RecBole writes the type of a column behind a colon
    return str(name).strip().lower().replace("-", "_").split(":")[0]


def _first(words: Sequence[str], plain: Sequence[str]) -> int | None:
    """Find the place of the first word that is a name of a column."""
    for word in words:
        if word in plain:
            return plain.index(word)
    return None
