"""Make the data files of this package from the triples themselves.

    python -m benchmarks.make_datasets CHECKOUTS [--only NAME ...] [--out FOLDER]

CHECKOUTS has a clone of every repository of ``benchmarks/make_datasets.py`` as ``owner/name``; the
commit named there is read. The files of PyKEEN come from the installed package. The checksum of a
split is the SHA-256 of its triples as lines "head TAB relation TAB tail LF" of labels, sorted by
code point, UTF-8. Any copy of the dataset can be compared with it.
"""

import argparse
import hashlib
import importlib.util
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from torchrankmetrics.datasets.facts import ENTITIES, SPLITS, Entities
from torchrankmetrics.definitions.sample import IntArray
from torchrankmetrics.kg.known_triples import KnownTriples
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide

Triple = tuple[str, str, str]
Layout = Literal["head relation tail", "head tail relation", "OpenKE", "pairs"]


@dataclass(frozen=True)
class GraphSource:
    """What is needed to make the data file of a graph.

    Attributes:
        name: of the data set here.
        title: as papers print it, with the graph that is meant.
        repository: "owner/name" on GitHub, or "pykeen" for the files in PyKEEN's wheel.
        commit: of the repository, and its date; or the version of the wheel.
        license: of the triples, as far as their repository says.
        files: of each split, joined.
        protocol: what its users rank among what, in a sentence.
        synonyms: other names it is known by.
        layout: columns of the files; "OpenKE": ids with a line count, "pairs": an alignment of two
            graphs.
        separator: between columns.
    """

    name: str
    title: str
    repository: str
    commit: tuple[str, str]
    license: str
    files: Mapping[str, tuple[str, ...]]
    protocol: str = "all entities of its files; filtered by all of them"
    synonyms: tuple[str, ...] = ()
    layout: Layout = "head relation tail"
    separator: str = "\t"


_COMMITS = {
    "pykeen": ("1.11.1", ""),
    "1049451037/GCN-Align": ("4fc90c438e5a609b96df03daff170fbcf03fde94", "2019-08-13"),
    "TimDettmers/ConvE": ("f3c0eb286025410fa5b4c04696c918264163d0ca", "2022-10-17"),
    "ZhenfengLei/KGDatasets": ("3f8c12defd62c94cc512a693228906b019ff73b9", "2018-05-28"),
    "bdi-lab/InGram": ("f2554dd0c684bad71d3e01d534f2f7814cf28644", "2025-05-27"),
    "guojiapub/BiQUE": ("548de69f803f541b30fc4ab27c6d25632f1a7bf7", "2023-04-26"),
    "ibalazevic/multirelational-poincare": (
        "34523a61ca7867591fd645bfb0c0807246c08660",
        "2019-10-09",
    ),
    "kkteru/grail": ("2a3dffa719518e7e6250e355a2fb37cd932de91e", "2020-06-17"),
    "migalkin/StarE": ("f40a5ee082d61851477e9870c21e991c7d91deb3", "2020-11-17"),
    "pykeen/ilpc2022": ("3d0166dc78a91c6f9075e988f7ddaa68b10f3704", "2022-03-11"),
    "seukgcode/PAAR": ("3762ad46df5c97876280218bb005ca5443a5feda", "2021-10-23"),
    "shuwen-liu-ox/INDIGO": ("ad1b20bb290d28cf8a19357ea059077248e25d45", "2021-10-31"),
    "thunlp/OpenKE": ("64c4ec8157abfc39112772e9825a349091da45f1", "2024-01-10"),
    "tsafavi/codex": ("3132e426c2a6b643b70bad679905a3a6270be440", "2021-03-05"),
}
_LICENCES = {
    "pykeen": "MIT (PyKEEN)",
    "1049451037/GCN-Align": (
        "none stated; JAPE, from which it has the data: MIT; derived from DBpedia, CC BY-SA"
    ),
    "TimDettmers/ConvE": "MIT (ConvE)",
    "ZhenfengLei/KGDatasets": "none stated; derived from DBpedia, CC BY-SA",
    "bdi-lab/InGram": "CC BY-NC-SA 4.0 (InGram)",
    "guojiapub/BiQUE": "none stated; derived from ConceptNet, CC BY-SA",
    "ibalazevic/multirelational-poincare": "MIT (multirelational-poincare); derived from NELL",
    "kkteru/grail": "none stated",
    "migalkin/StarE": "CC BY 4.0 (StarE, data/clean); derived from Wikidata, CC0",
    "pykeen/ilpc2022": "MIT (ILPC 2022); derived from Wikidata, CC0",
    "seukgcode/PAAR": "none stated; DacKGR, which published the data: MIT",
    "shuwen-liu-ox/INDIGO": "MIT (INDIGO)",
    "thunlp/OpenKE": "none stated",
    "tsafavi/codex": "MIT (CoDEx); derived from Wikidata, CC0",
}
_FREEBASE, _WORDNET = "; derived from Freebase, CC BY", "; derived from WordNet, WordNet license"
_NELL = "; derived from NELL"
_INDUCTIVE = (
    "all entities of the inductive graph's three files, its facts being train; "
    "filtered by the three"
)
_MERGED = (
    "valid and test of the inductive graph as one test set, among all its entities; filtered by "
    "its three files; what ULTRA reports"
)
_SPLITS = ("train", "valid", "test")


def _graph(
    name: str,
    title: str,
    repository: str,
    files: str | Mapping[str, tuple[str, ...]],
    more: str = "",
    **fields: Any,
) -> GraphSource:
    """A source; its files are given by their pattern.

    ``more`` is the license of the data, in addition to the license of the repository.
    """
    if isinstance(files, str):
        files = {split: (files.format(split),) for split in _SPLITS}
    return GraphSource(
        name, title, repository, _COMMITS[repository], _LICENCES[repository] + more, files, **fields
    )


def sources() -> Iterator[GraphSource]:
    """All data sets that are shipped."""
    yield _graph("nations", "Nations", "pykeen", "nations/{}.txt")
    yield _graph("kinships", "Kinships", "pykeen", "kinships/{}.txt", synonyms=("kinship",))
    yield _graph("umls", "UMLS", "pykeen", "umls/{}.txt")
    yield from _transductive()
    yield from _grail()
    yield from _inductive()
    for pair in ("zh-en", "ja-en", "fr-en"):
        yield _graph(
            f"dbp15k-{pair}",
            f"DBP15K {pair.upper()}",
            "1049451037/GCN-Align",
            {"test": (f"data/{pair.replace('-', '_')}/ref_ent_ids",)},
            protocol="70% of the 15,000 aligned pairs (30% are seeds); the partner of each among "
            "those of all test pairs, nothing filtered; head and tail are the two directions",
            layout="pairs",
        )


def _transductive() -> Iterator[GraphSource]:
    conve, openke, paar = "TimDettmers/ConvE", "thunlp/OpenKE", "seukgcode/PAAR"
    for i in (1, 2, 3):
        yield _graph(
            f"countries_s{i}", f"Countries S{i}", conve, f"countries/countries_S{i}/{{}}.txt"
        )
    yield _graph("fb15k237", "FB15k-237", conve, "FB15k-237.tar.gz:{}.txt", _FREEBASE)
    yield _graph("wn18rr", "WN18RR", conve, "WN18RR.tar.gz:{}.txt", _WORDNET)
    for name, title, folder, more in (
        ("wn18", "WN18", "WN18", _WORDNET),
        ("fb13", "FB13, true triples", "FB13", _FREEBASE),
        ("nell-995", "NELL-995 of Xiong et al. 2017, 3,992 test triples", "NELL-995", _NELL),
    ):
        yield _graph(
            name,
            title,
            openke,
            f"benchmarks/{folder}/{{}}2id.txt",
            more,
            layout="OpenKE",
            separator=" ",
        )
    for size, word in (("s", "small"), ("m", "medium")):
        path = f"data/triples/codex-{size}/{{}}.txt"
        yield _graph(
            f"codex-{size}",
            f"CoDEx-{size.upper()}",
            "tsafavi/codex",
            path,
            synonyms=(f"codex-{word}",),
        )
    for name, title, folder in (
        ("nell23k", "NELL23K", "NELL23K"),
        ("wd-singer", "WD-singer", "WD-singer"),
        ("fb15k237-10", "FB15K-237-10, a tenth of the training triples", "FB15K-237-10"),
    ):
        stems = {"train": "train", "valid": "dev", "test": "test"}
        files = {split: (f"data/{folder}/{stem}.triples",) for split, stem in stems.items()}
        yield _graph(name, title, paar, files, layout="head tail relation")
    path, synonyms = "DBpedia50/{}.txt", ("dbp50", "db50")
    yield _graph(
        "dbpedia50",
        "DBpedia50",
        "ZhenfengLei/KGDatasets",
        path,
        synonyms=synonyms,
        layout="head tail relation",
    )
    path = "data/NELL-995-h100/{}.txt"
    yield _graph("nell-995-h100", "NELL-995-h100", "ibalazevic/multirelational-poincare", path)
    path, synonyms = "src_data/conceptnet-100k/{}", ("cn-100k", "cnet100k")
    yield _graph("conceptnet-100k", "ConceptNet-100K", "guojiapub/BiQUE", path, synonyms=synonyms)
    path, title = "data/clean/wd50k/triples/{}.txt", "WD50K, triples without qualifiers"
    yield _graph(
        "wd50kt", title, "migalkin/StarE", path, synonyms=("wd50k-triples",), separator=","
    )


def _grail() -> Iterator[GraphSource]:
    for family, title, stem, more in (
        ("fb15k237", "FB15k-237", "fb237", _FREEBASE),
        ("wn18rr", "WN18RR", "WN18RR", _WORDNET),
        ("nell995", "NELL-995", "nell", _NELL),
    ):
        for version in range(1, 5):
            for kind, of, protocol in (
                (
                    "",
                    "the training graph",
                    "all entities of the training graph; filtered by its three files",
                ),
                ("-ind", "the inductive graph", _INDUCTIVE),
                ("-ind-merged", "the inductive graph, valid + test", _MERGED),
            ):
                folder = f"data/{stem}_v{version}{'_ind' if kind else ''}"
                files = {split: (f"{folder}/{split}.txt",) for split in _SPLITS}
                if kind == "-ind-merged":
                    files = {"train": files["train"], "test": files["valid"] + files["test"]}
                synonyms = () if stem.lower() == family else (f"{stem}-v{version}{kind}",)
                yield _graph(
                    f"{family}-v{version}{kind}",
                    f"{title} v{version} of GraIL, {of}",
                    "kkteru/grail",
                    files,
                    more,
                    protocol=protocol,
                    synonyms=synonyms,
                )


def _inductive() -> Iterator[GraphSource]:
    for family, shares in (
        ("FB", (25, 50, 75, 100)),
        ("WK", (25, 50, 75, 100)),
        ("NL", (0, 25, 50, 75, 100)),
    ):
        for share in shares:
            folder = f"{family}-{share}"
            yield _graph(
                f"ingram-{folder.lower()}",
                f"{folder} of InGram, the inference graph",
                "bdi-lab/InGram",
                {
                    split: (f"data/{folder}/{'msg' if split == 'train' else split}.txt",)
                    for split in _SPLITS
                },
                protocol=_INDUCTIVE,
                synonyms=(folder.lower(),),
            )
    stems = {"train": "inference", "valid": "inference_validation", "test": "inference_test"}
    for size in ("small", "large"):
        yield _graph(
            f"ilpc-{size}",
            f"ILPC 2022 {size}, the inference graph",
            "pykeen/ilpc2022",
            {split: (f"data/{size}/{stem}.txt",) for split, stem in stems.items()},
            protocol=_INDUCTIVE,
            synonyms=(f"ilpc2022-{size}", f"ilpc22-{size}"),
        )
    for thousands in (1, 3, 5):
        folder = f"data/Hamaguchi-BM_both-{thousands}000/test"
        yield _graph(
            f"hm-{thousands}k",
            f"Hamaguchi-BM both-{thousands}000 of INDIGO, the test graph",
            "shuwen-liu-ox/INDIGO",
            {"train": (f"{folder}/test-graph.txt",), "test": (f"{folder}/test-fact.txt",)},
            protocol="all entities of the test graph's two files; "
            "filtered by the two, as ULTRA does",
        )


_DATA = Path(__file__).parent.parent / "src" / "torchrankmetrics" / "datasets" / "data"
_SEEDS = 0.3  # of the aligned pairs, by the convention of all users of DBP15K


def checksum(triples: Iterable[tuple[str, ...]]) -> str:
    """SHA-256 of triples, or pairs, as sorted lines of labels."""
    lines = sorted("\t".join(triple) + "\n" for triple in triples)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_file(source: GraphSource, path: str, checkouts: Path) -> str:
    """Text of a file of a repository at its commit, or of PyKEEN."""
    if source.repository == "pykeen":
        spec = importlib.util.find_spec("pykeen")
        assert spec is not None, "PyKEEN is not installed"
        assert spec.origin is not None
        return (Path(spec.origin).parent / "datasets" / path).read_text(encoding="utf-8")
    path, _, member = path.partition(":")
    command = [
        "git",
        "-C",
        str(checkouts / source.repository),
        "show",
        f"{source.commit[0]}:{path}",
    ]
    content = subprocess.run(command, check=True, capture_output=True).stdout
    if member:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            file = archive.extractfile(member)
            assert file is not None, f"{path} has no file {member}"
            content = file.read()
    return content.decode("utf-8")


def read_split(source: GraphSource, split: str, checkouts: Path) -> list[Triple]:
    """The triples of a split as labels, in the order of the files."""
    triples: list[Triple] = []
    for path in source.files[split]:
        lines = [line for line in read_file(source, path, checkouts).split("\n") if line.strip()]
        if source.layout == "OpenKE":
            folder = path[: path.rindex("/") + 1] if "/" in path else ""
            entity, relation = (
                _openke_labels(source, f"{folder}{of}2id.txt", checkouts)
                for of in ("entity", "relation")
            )
            assert int(lines[0]) == len(lines) - 1, f"{path} says {lines[0]} triples"
            ids = [line.split() for line in lines[1:]]
            triples += [(entity[h], relation[r], entity[t]) for h, t, r in ids]
            continue
        for line in lines:
            first, second, third = line.rstrip("\r").split(source.separator)
            triples.append(
                (first, third, second)
                if source.layout == "head tail relation"
                else (first, second, third)
            )
    return triples


def facts_of(source: GraphSource, checkouts: Path) -> dict[str, object]:
    """Everything the data file of a graph holds."""
    facts = {
        "title": source.title,
        "synonyms": list(source.synonyms),
        "source": _origin(source),
        "license": source.license,
        "protocol": source.protocol,
    }
    if source.layout == "pairs":
        return facts | _facts_of_pairs(source, checkouts)
    labelled = {
        split: read_split(source, split, checkouts) for split in SPLITS if split in source.files
    }
    return facts | facts_of_triples(labelled)


def number_triples(
    splits: Mapping[str, list[Triple]],
) -> tuple[dict[str, IntArray], list[str], list[str]]:
    """Splits as ids (n, 3), in the order of the sorted labels; labels of entities and relations."""
    every = [triple for triples in splits.values() for triple in triples]
    entity = {
        label: i for i, label in enumerate(sorted({label for h, _, t in every for label in (h, t)}))
    }
    relation = {label: i for i, label in enumerate(sorted({r for _, r, _ in every}))}
    ids = {
        split: [(entity[h], relation[r], entity[t]) for h, r, t in triples]
        for split, triples in splits.items()
    }
    numbers = {split: np.array(triples, np.int64).reshape(-1, 3) for split, triples in ids.items()}
    return numbers, list(entity), list(relation)


def candidate_histogram(
    splits: Mapping[str, IntArray],
    tasks: str,
    known: Sequence[str],
    side: EntitySide,
    *,
    entities: Entities,
    num_entities: int,
) -> tuple[IntArray, IntArray]:
    """Count how many tasks of a split have how many candidates.

    Splits are (n, 3) triples; triples of the splits ``known`` are filtered.
    """
    index = KnownTriples(
        *(torch.from_numpy(splits[name]) for name in known), num_entities=num_entities
    )
    triples, candidates = splits[tasks], None
    if entities == "train":
        train = splits["train"]
        ids = np.unique(train[:, [0, 2]])
        triples = triples[
            np.isin(triples[:, [0, 2]], ids).all(1) & np.isin(triples[:, 1], train[:, 1])
        ]
        candidates = torch.from_numpy(ids)
    counts = index.num_candidates(torch.from_numpy(triples), side, candidates=candidates)
    numbers, count = np.unique(counts.numpy(), return_counts=True)
    return numbers, count


def facts_of_triples(labelled: dict[str, list[Triple]]) -> dict[str, object]:
    """Sizes, checksums, histograms of a graph; "train" is written where it differs from "all"."""
    splits, entity_labels, relation_labels = number_triples(labelled)
    histograms = []
    for number, split in enumerate(labelled):
        # early stopping must not look at test triples: each split is filtered by itself and those
        # before it
        known = list(labelled)[: number + 1]
        for side in ENTITY_SIDES:
            found = [
                candidate_histogram(
                    splits, split, known, side, entities=entities, num_entities=len(entity_labels)
                )
                for entities in ENTITIES
            ]
            if all(map(np.array_equal, *found)):
                del found[1]
            for entities, (numbers, count) in zip(ENTITIES, found, strict=False):
                histograms.append(
                    _entry(split, entities, side, known, numbers.tolist(), count.tolist())
                )
    in_train = len(np.unique(splits["train"][:, [0, 2]]))
    return {
        "num_entities": {"all": len(entity_labels), "train": in_train},
        "num_relations": len(relation_labels),
        "num_triples": {split: len(triples) for split, triples in labelled.items()},
        "checksum": {split: checksum(triples) for split, triples in labelled.items()},
        "histograms": histograms,
    }


def _facts_of_pairs(source: GraphSource, checkouts: Path) -> dict[str, object]:
    (path,) = source.files["test"]
    lines = read_file(source, path, checkouts).splitlines()
    pairs = [tuple(line.split("\t")) for line in lines]
    left, right = (len(set(column)) for column in zip(*pairs, strict=True))
    assert left == right == len(pairs), f"{path} is not one-to-one"
    tests = len(pairs) - round(_SEEDS * len(pairs))
    return {
        "num_entities": {"all": tests, "train": tests},
        "num_relations": 1,
        "num_triples": {"test": tests},
        "checksum": {"test": checksum(pairs)},
        "histograms": [_entry("test", "all", side, [], [tests], [tests]) for side in ENTITY_SIDES],
    }


def _entry(
    split: str, entities: str, side: str, known: list[str], numbers: list[int], count: list[int]
) -> object:
    tasks = {"split": split, "entities": entities, "side": side, "known": known}
    return tasks | {"num_candidates": numbers, "count": count}


def _openke_labels(source: GraphSource, path: str, checkouts: Path) -> dict[str, str]:
    count, *lines = read_file(source, path, checkouts).splitlines()
    labels = {number: label for label, number in (line.split("\t") for line in lines)}
    assert len(labels) == int(count), f"{path} says {count} labels"
    return labels


def _origin(source: GraphSource) -> str:
    commit, date = source.commit
    if source.repository == "pykeen":
        return f"files of the pykeen {commit} wheel"
    return f"github.com/{source.repository} at {commit[:12]} ({date})"


def write(path: Path, facts: dict[str, object]) -> None:
    """Write a data file, one field and one histogram a line."""
    histograms: object = facts["histograms"]
    assert isinstance(histograms, list)
    head = [
        f"{json.dumps(key)}: {json.dumps(value)},\n"
        for key, value in facts.items()
        if key != "histograms"
    ]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in histograms)
    path.write_text("{" + "".join(head) + '"histograms": [\n' + lines + "\n]}\n", encoding="utf-8")


def main() -> None:
    """Make the file of every dataset in ``sources``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkouts", type=Path, help="folder with a clone of every repository, as owner/name"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these data sets alone")
    parser.add_argument("--out", type=Path, default=_DATA)
    args = parser.parse_args()
    for source in sources():
        if args.only is None or source.name in args.only:
            write(args.out / f"{source.name}.json", facts_of(source, args.checkouts))
            print(f"wrote {source.name}.json")


if __name__ == "__main__":
    main()
