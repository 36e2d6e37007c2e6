"""``metrics``: the names of all metrics, what each is of, and what else it is called."""

from torchrankmetrics.cli.output import FormatOption, OutputOption, emit
from torchrankmetrics.rendering import Cell, Tabular

_EXAMPLE = {"<k>": "10", "<p>": "2"}


def metrics_command(form: FormatOption = None, output: OutputOption = None) -> None:
    """List the metrics: of tasks, one answer each, or of queries with several; which views each has; other names.

    For example

    `torchrankmetrics metrics`
    """
    from torchrankmetrics.evaluation.measure import VIEW_PREFIXES
    from torchrankmetrics.evaluation.names import all_names, asked, synonyms_of
    from torchrankmetrics.theory.definitions import RankDefinition

    rows: list[tuple[Cell, ...]] = []
    for name in all_names():
        known = name
        for mark, number in _EXAMPLE.items():
            known = known.replace(mark, number)
        measure = asked(known)
        views = zip(VIEW_PREFIXES, measure.seen_as(*VIEW_PREFIXES), strict=True)
        of = "tasks" if isinstance(measure.definition, RankDefinition) else "queries"
        better = {True: "higher", False: "lower", None: ""}[measure.higher_is_better]
        seen = " ".join(view for view, found in views if found is not None)
        rows.append((name, of, better, seen, " ".join(synonyms_of(name))))
    notes = (
        "A name may say its side, rank type and view: tail_pessimistic_z_mrr. Views: z_mrr, p_mrr, adjusted_mrr, "
        "normalized_mrr; amr and amri are the normalized and the adjusted mean rank",
    )
    emit(Tabular.named(("metric", "of", "better", "views", "also"), rows, notes), form, output)
