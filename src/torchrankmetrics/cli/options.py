"""The commands: a dataclass of the options of each, and the function that runs it, which is imported when it runs."""

import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from torchrankmetrics.files import MAX_BYTES
from torchrankmetrics.validation import check_choice

Format = Literal["table", "csv", "json", "markdown", "latex", "html"]


def _cluster(name: str | None) -> str | None:
    return None if name is None else check_choice("--cluster", name, ("group", "sample_id"))


def opt(text: str, *names: str, **settings: Any) -> Any:
    """Declare an option by its help text; without names it is named after the field."""
    return typer.Option(*names, help=text, **settings)


def arg(text: str) -> Any:
    """Declare an argument by its help text."""
    return typer.Argument(help=text)


Metrics = Annotated[str, opt("Metrics, separated by commas.", "--metric", "-m")]
Level = Annotated[float, opt("Confidence level of intervals and tests.")]
Cluster = Annotated[str | None, opt("Sampling unit: group, or sample_id (both sides).", callback=_cluster)]
Entities = Annotated[str, opt("Candidate entities: all, or train (entities of train, as in PyKEEN).")]


@dataclass(kw_only=True)
class Command:
    """Options of every command, and ``function``, which takes them and returns the exit code."""

    function: ClassVar[str]
    context: typer.Context
    form: Annotated[Format | None, opt("Format; default: suffix of --output, or table.", "--format", "-f")] = None
    output: Annotated[Path | None, opt("File to write; default: standard output.", "--output", "-o")] = None

    def run(self) -> int:
        """Run the command and return its exit code."""
        code: int = pkgutil.resolve_name(f"torchrankmetrics.cli.{self.function}")(self)
        return code

    def given(self, *names: str) -> list[str]:
        """List the fields that were given on the command line, as options."""
        options = {parameter.name: parameter.opts[0] for parameter in self.context.command.params}
        sources = {name: self.context.get_parameter_source(name) for name in names}
        return [
            options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"
        ]

    def require(self, why: str, *names: str) -> None:
        """Raise a ValueError if one of these fields was given, because it would have no effect."""
        if options := self.given(*names):
            raise ValueError(f"{', '.join(options)} would do nothing {why}")


@dataclass(kw_only=True)
class RanksCommand(Command):
    """Options of commands that read ranks from files, or make them from qrels and runs."""

    qrels: Annotated[Path | None, opt("Relevance of documents, for --run: TREC, BEIR or JSON.")] = None
    runs: Annotated[list[Path] | None, opt("Scores of documents: TREC, BEIR or JSON; repeatable.", "--run")] = None
    num_candidates: Annotated[int | None, opt("Size of the collection, for chance-adjusted views of runs.")] = None
    relevance_threshold: Annotated[float, opt("Smallest label of a relevant document, for binary metrics.")] = 1.0
    max_bytes: Annotated[int, opt("Maximum memory of a file of ranks; larger files are an error.", min=1)] = MAX_BYTES
    fragment: Annotated[bool, opt("Write the HTML <table> without the rest of the page.", "--fragment")] = False


@dataclass(kw_only=True)
class ReportCommand(RanksCommand):
    """Compute metrics of saved ranks, or of retrieval runs.

    For example

    `torchrankmetrics report ranks.npz --view base,adjusted_index --side both,head,tail`

    `torchrankmetrics report ranks.npz -m mrr,hits@10 --confidence-level 0.95 --cluster sample_id`

    `torchrankmetrics report ranks.npz -m mrr --by-group --format csv`

    `torchrankmetrics report --qrels test.tsv --run bm25.run.gz -m ndcg@10,recall@100`
    """

    function = "ranks:print_report"
    files: Annotated[list[Path] | None, arg("Files of ranks, directories of such files, or -.")] = None
    metrics: Annotated[str | None, opt("Metrics: mrr,hits@10,amri,z_mrr ...; default: eight.", "--metric", "-m")] = None
    view: Annotated[str, opt("Views: base, normalized, adjusted_index, z_score, p_value.")] = "base"
    side: Annotated[str, opt("Sides: both, head, tail, relation.")] = "both"
    rank_type: Annotated[str, opt("Ranks of ties: realistic, optimistic, pessimistic, expected.")] = "realistic"
    confidence_level: Annotated[float | None, opt("Confidence level of intervals; default: no intervals.")] = None
    method: Annotated[str, opt("Method of the intervals: normal or bootstrap.")] = "normal"
    cluster: Cluster = None
    by_group: Annotated[bool, opt("Print one line per group.", "--by-group")] = False
    fail_under: Annotated[str | None, opt("Exit with code 1 below a limit: mrr=0.3,amri=0.8.")] = None


@dataclass(kw_only=True)
class CompareCommand(RanksCommand):
    """Compare models on the same tasks: difference, confidence interval, p-value.

    Tasks are matched by side and sample id, or by order without sample ids. For two models p_adjusted is Holm's over
    the metrics. Three or more models are named after their files; pairs and metrics are one family of tests (max-T, or
    Holm for directories of training runs).

    For example

    `torchrankmetrics compare a.npz b.npz -m mrr,hits@10,amri --cluster sample_id`

    `torchrankmetrics compare ours.npz theirs.npz old.npz -m mrr,hits@10 --baseline best`

    `torchrankmetrics compare new.npz old.npz -m mrr --fail-if worse`

    `torchrankmetrics compare --qrels test.tsv --run bm25.run --run dense.json -m ndcg@10,recall@100`
    """

    function = "ranks:print_comparison"
    files: Annotated[
        list[Path] | None, arg("Ranks of two models or more: files, or directories with a file per training run.")
    ] = None
    metrics: Annotated[str | None, opt("Metrics, separated by commas; default: mrr.", "--metric", "-m")] = None
    confidence_level: Level = 0.95
    cluster: Cluster = None
    baseline: Annotated[str | None, opt("Model to compare with the others: a name, or best.")] = None
    margin: Annotated[float | None, opt("Test whether two models are equal within this margin.")] = None
    fail_if: Annotated[str | None, opt("Exit with code 1 if a is worse, not-better or not-equivalent.")] = None


@dataclass(kw_only=True)
class StudyCommand(Command):
    """Put models, datasets and seeds into one table, or into an HTML page with figures that `verify` checks.

    The best value of a dataset is bold; models that are not significantly different from it are marked. CSV and
    JSON have one row per cell.

    For example

    `torchrankmetrics study "runs/{dataset}/{model}/{seed}.npz" --metric mrr,hits@10 --output report.html`

    `torchrankmetrics study "runs/{model}.csv" -m amri --format latex`
    """

    function = "study:study"
    pattern: Annotated[str, arg("Paths of files of ranks, with {dataset}, {model} and {seed}.")]
    metrics: Metrics = "mrr,hits@10"
    view: Annotated[str, opt("View: base, normalized, adjusted_index or z_score.")] = "base"
    confidence_level: Level = 0.95
    cluster: Cluster = None
    margin: Annotated[float | None, opt("Mark models that no other model exceeds by this margin.")] = None
    values_only: Annotated[bool, opt("Print no intervals.", "--values-only")] = False
    across: Annotated[bool, opt("Print averages over the datasets and how often models win.", "--across")] = False


@dataclass(kw_only=True)
class VerifyCommand(Command):
    """Compute the manifest of a study page again from its files of ranks, and print what differs.

    The displayed text of the page is not verified. The exit code is 1 if something differs.

    For example

    `torchrankmetrics verify report.html runs/`
    """

    function = "study:verify_page"
    report: Annotated[Path, arg("HTML page that study has written.")]
    folder: Annotated[Path, arg("Directory that the paths of the page are relative to.")]


@dataclass(kw_only=True)
class AdjustCommand(Command):
    """Adjust a published number for chance, with the candidate counts of its test set.

    0 is random ranking and 1 the optimum; low and high are the ends of the interval that the rounding leaves.

    For example

    `torchrankmetrics adjust --dataset fb15k237 --metric mrr --value 0.355`

    `torchrankmetrics adjust -d wn18rr -m hits@10 --value 0.55 --view adjusted_index,z_score --side tail`
    """

    function = "counts:adjust_value"
    metric: Annotated[str, opt("Published metric: mrr, mr, hits@10 ...", "--metric", "-m")]
    value: Annotated[str, opt("Published value with its digits; hits as a share.")]
    dataset: Annotated[str | None, opt("Dataset with known candidate counts.", "--dataset", "-d")] = None
    counts: Annotated[Path | None, opt("Candidate counts: CSV file that candidates --histogram writes.")] = None
    num_candidates: Annotated[int | None, opt("Number of candidates of every task.")] = None
    view: Annotated[str, opt("Views: adjusted_index, normalized, z_score, p_value.")] = "adjusted_index"
    split: Annotated[str, opt("Split: train, valid or test.")] = "test"
    side: Annotated[str, opt("Side of the ranking tasks: both, head or tail.")] = "both"
    entities: Entities = "all"


@dataclass(kw_only=True)
class DatasetsCommand(Command):
    """List the datasets with known filtered candidate counts, or mean and variance under random ranking on them.

    Each split is filtered by itself and the splits before it (column known).

    For example

    `torchrankmetrics datasets`

    `torchrankmetrics datasets --metric mrr,hits@10 --format csv --split valid,test --side both,head,tail`
    """

    function = "counts:datasets"
    names: Annotated[list[str] | None, arg("Names of datasets; default: all.")] = None
    metrics: Annotated[
        str | None, opt("Metrics to print mean and variance of under random ranking.", "--metric", "-m")
    ] = None
    split: Annotated[str, opt("Splits: train, valid, test.")] = "test"
    side: Annotated[str, opt("Sides: both, head, tail.")] = "both"
    entities: Entities = "all"


@dataclass(kw_only=True)
class CandidatesCommand(Command):
    """Count the filtered candidates of every ranking task of a graph.

    Test is filtered by all files, valid by train and valid, train by train: early stopping must not see test triples.

    For example

    `torchrankmetrics candidates --train train.tsv --valid valid.tsv --test test.tsv`

    `torchrankmetrics candidates --train train.tsv --test test.tsv --histogram -f csv -o counts.csv`
    """

    function = "counts:candidates"
    train: Annotated[Path, opt("File of triples: head TAB relation TAB tail, labels or ids.")]
    test: Annotated[Path, opt("File of test triples.")]
    valid: Annotated[Path | None, opt("File of validation triples.")] = None
    entities: Entities = "all"
    num_entities: Annotated[int | None, opt("Number of entities, if some occur in no triple.")] = None
    histogram: Annotated[bool, opt("Print every count, for adjust --counts.", "--histogram")] = False


@dataclass(kw_only=True)
class AuditCommand(Command):
    """Check an evaluator on small cases with known results.

    The function is imported from the working directory or an installed package. The command prints one line per check
    and exits with 1 if a check failed or raised an exception.

    For example

    `torchrankmetrics audit mypackage.evaluation:ranks --ties realistic`
    """

    function = "study:audit_evaluator"
    evaluator: Annotated[str, arg("package.module:function of (scores, target, exclude).")]
    ties: Annotated[str | None, opt("Required tie rule: optimistic, realistic, pessimistic or expected.")] = None
    pairs: Annotated[bool, opt("Pass exclude as (2, P) pairs instead of a mask.", "--pairs")] = False
    max_candidates: Annotated[int | None, opt("Skip cases with more candidates than this.")] = None


@dataclass(kw_only=True)
class MetricsCommand(Command):
    """List the metrics of ranking tasks and of queries, with their views and synonyms.

    For example

    `torchrankmetrics metrics`
    """

    function = "counts:metrics"


COMMANDS: dict[str, type[Command]] = {
    "report": ReportCommand,
    "compare": CompareCommand,
    "study": StudyCommand,
    "verify": VerifyCommand,
    "adjust": AdjustCommand,
    "datasets": DatasetsCommand,
    "candidates": CandidatesCommand,
    "audit": AuditCommand,
    "metrics": MetricsCommand,
}
