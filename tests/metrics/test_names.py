"""Names of metrics and keys: synonyms; products of views, rank types and sides; suggestions."""

import re

import pytest

from torchrankmetrics import HitsAtK, MeanRank, RankCollection, Ranks
from torchrankmetrics.definitions import hits_at, power_mean_rank
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.metrics.registry import EXPONENT, NUMBERED, PERSISTENCE, PLACES, Entry
from torchrankmetrics.queries import rank_biased_precision

SYNONYMS = {
    "mrr": "mrr mean_reciprocal_rank inverse_harmonic_mean_rank ihmr",
    "mr": "mr arithmetic_mean_rank mean_rank average_rank avg_rank",
    "hits_at_10": "hits@10 h@10 hits_at_10 h_at_10 hits10 h10",
    "amr": "amr aamr adjusted_mean_rank adjusted_arithmetic_mean_rank",
    "amri": "amri aamri adjusted_mean_rank_index adjusted_arithmetic_mean_rank_index",
    "adjusted_mrr": "amrr aihmr adjusted_mrr adjusted_mean_reciprocal_rank "
    "adjusted_inverse_harmonic_mean_rank",
    "adjusted_hits_at_10": "ah@10 adjusted_hits_at_10 adjusted_hits@10 ahits@10 "
    "ah_at_10 adjusted_hits_at_k ahk ah@k",
    "z_mr": "zmr zamr z_mr z_mean_rank z_arithmetic_mean_rank",
    "z_mrr": "z_mrr zmrr zihmr z_mean_reciprocal_rank z_inverse_harmonic_mean_rank",
    "z_hits_at_10": "z_hits_at_10 zh@10 zhits@10 z_hits@10 z_hits_at_k zahk",
    "imr": "iamr imr inverse_arithmetic_mean_rank inverse_mean_rank",
    "adjusted_gmr": "gmri agmri adjusted_gmr adjusted_geometric_mean_rank_index",
    "rank_variance": "variance rank_var var rank_variance",
    "rank_std": "standard_deviation rank_std std",
    "rank_mad": "median_absolute_deviation rank_mad mad",
    "count": "count rank_count",
    "normalized_gmr": "normalized_gmr normalized_geometric_mean_rank",
    "p_mrr": "p_mrr p_ihmr p_mean_reciprocal_rank",
    "p_hits_at_3": "p_hits_at_3 p_h@3",
    "power_mean_rank_2p5": "power_mean_rank_2p5 power_mean_rank_2.5",
    "power_mean_rank_minus_inf": "power_mean_rank_minus_inf",
    # words of information retrieval, recommendation, image-text retrieval and classification
    "f1_at_10": "F1@10 f1_score@10 f_measure@10",
    "fall_out_at_10": "fallout@10 fall_out_10",
    "recall_cap_at_10": "R_cap@10 recall_cap_10",
    "ap_cap_at_10": "map_cap@10 MAP_cap_10",
    "success_at_10": "hr@10 HR10 hr_10 hit_rate@10 hitrate@10 hit_ratio@10 success_10 s@10 "
    "accuracy@10 acc@10",
    "success_at_1": "top1 top-1 top_1 top1_accuracy top-1-accuracy hit@1 accuracy@1",
    "recall_at_10": "recall@10 recall_10 recall10",
    "precision_at_5": "p@5 P_5 prec@5 precision_at_5",
    "rr": "rr recip_rank reciprocal_rank arhr",
    "rr_at_10": "mrr@10 mrr_10 mrr10 rr@10",
    "ap": "map mAP average_precision mean_average_precision",
    "ap_at_100": "map@100 map_cut_100 ap@100",
    "ndcg": "nDCG ndcg normalized_discounted_cumulative_gain",
    "ndcg_at_10": "ndcg@10 ndcg_cut_10 nDCG10",
    "ndcg_exp_at_10": "ndcg_exp@10 NDCG_exp_10",
    "dcg_at_5": "DCG@5 dcg_5",
    "rbp": "rbp_0p8 rbp_0.8 rank_biased_precision",
    "rbp_0p95": "RBP_0.95",
    "recall_at_10_rel_2": "recall@10_rel_2 recall@10-rel-2.0",
    "first_mr": "MeanR",
    "median_rank": "median",
    "first_median_rank": "MedR",
    "auc": "rocauc auroc mean_quantile",
}


def keys(*args, **kwargs):
    return list(RankCollection(*args, **kwargs).keys())


@pytest.mark.parametrize("key", SYNONYMS)
def test_synonyms_have_the_canonical_key(key):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", key)  # every logger takes it
    for synonym in SYNONYMS[key].split():
        for name in (synonym, synonym.upper(), synonym.title(), f" {synonym} "):
            assert keys([name]) == [key]
        if "." not in synonym:
            assert keys([f"tail.optimistic.{synonym}"]) == [f"tail_optimistic_{key}"]
        assert keys([f"head_worst_{synonym}"]) == [f"head_pessimistic_{key}"]
    if not re.match("(adjusted|normalized|z|p)_|amr|count|rank_|.*median", key):
        assert keys([f"z_{key}"]) == [f"z_{key}"]
    assert keys(["average.mr", "avg_mrr"]) == ["mr", "mrr"]  # PyKEEN's word for the realistic rank


def test_every_name_is_its_own_key_and_every_key_of_pykeen_is_known():
    names = [name.replace("<k>", "3").replace("<p>", "2") for name in RankCollection.names()]
    assert keys(names) == names
    metrics = pytest.importorskip("pykeen.metrics.ranking", reason="PyKEEN 1.11.1 is not installed")
    for cls in metrics.rank_based_metric_resolver:
        for name in (cls().key, *cls.synonyms):
            # keys of these do not contain k
            if "adjusted_" not in name and not name.startswith(("ah", "z")):
                name = re.sub("(@|at_)k$", r"\g<1>10", name)
            name = re.sub("(@|at_)$", r"\g<1>10", name)
            for prefix in ("", "both.realistic.", "head.best."):
                parse_name(prefix + name)


@pytest.mark.parametrize(
    ("number", "name", "text"),
    [
        (PLACES, "hits_at_7", "7"),
        (EXPONENT, "power_mean_rank_minus_1p5", "minus_1.5"),
        (PERSISTENCE, "rbp_0p5", "0p5"),
    ],
)
def test_a_row_with_a_number_is_all_that_the_parser_needs(number, name, text, monkeypatch):
    makers = {PLACES: hits_at, EXPONENT: power_mean_rank, PERSISTENCE: rank_biased_precision}
    row = Entry("my_share", makers[number], "my_synonym", number)
    for word in row.words:
        monkeypatch.setitem(NUMBERED[number], word, row)
    for word in row.words:
        parsed = parse_name(f"tail_pessimistic_z_{word}{number.short_joint}{text}")
        assert parsed.definition.name == name
        assert (parsed.side, parsed.rank_type, parsed.view) == ("tail", "pessimistic", "z_score")
        with pytest.raises(ValueError, match=f"needs {number.meaning}, for example my_share_"):
            parse_name(word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("bpref", "ir_measures has bpref"),
        ("ERR@20", "ir_measures has it"),
        ("f1", "needs a number of first places, for example f1_at_10"),
        ("f2", "precision_at_<k> and recall_at_<k> are"),
        ("f2@10", "precision_at_<k> and recall_at_<k> are"),
        ("hits@10_50", "expected hits@10 among 50 sampled candidates"),
        ("hits@10(50)", "expected hits@10 among 50 sampled candidates"),
        ("gm_map", "another aggregate than the mean.*query_values"),
        ("nAUC", "confidence of a model"),
        ("nauc_ndcg_at_10_max", "confidence of a model"),
        ("rbo", "two rankings"),
        ("MAP@R", "first m places"),
        ("infAP", "sampled judgments"),
        ("hole@10", "have a judgment"),
        ("NCRR", "QueryDefinition"),
        ("gauc", "it is query_auc"),
        ("coverage@10", "not on ranks"),
        ("rsum", "add success_at_1"),
        ("RetrievalMRR", "it is 'rr'"),
        ("LinkPredRecall", "it is 'recall_at_<k>'"),
        ("filtered_mrr", "exclude= of update.* use 'mrr'"),
        ("hmr@10", "'hmr' uses all ranks and takes no @10; hits_at_10 and rr_at_10"),
        ("recall", "needs a number of first places, for example recall_at_10"),
        ("hits@k", "needs a number of first places, for example hits_at_10"),
        ("power_mean_rank", "needs an exponent, for example power_mean_rank_2"),
        ("rbp_p", "needs a persistence, for example rbp_0p8"),
        ("hits@0", "k must be an int of at least 1"),
        ("R@10", "two meanings: recall_at_10.*success_at_10"),
        *(
            (word, f"unknown metric '{re.escape(word)}'")
            for word in ("", "nonsense", "tail.tail.mrr", "hits@-1", ".")
        ),
        *(("adjusted_adjusted_mrr", "unknown metric"), ("tail_", "unknown metric")),
    ],
)
def test_names_without_a_metric_raise_with_the_alternative(word, message):
    with pytest.raises(ValueError, match=message):
        RankCollection([word])


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("recal@10", {"recall_at_10"}),
        ("z_recal@10", {"z_recall_at_10"}),
        ("normalised_dcg", {"ndcg"}),
        ("rcp", set()),
        ("aup", set()),
        ("adjusted_ngcd", {"adjusted_ndcg"}),
        ("mrrr", {"mrr", "rr"}),
        ("normalized_coun", set()),
    ],
)
def test_suggestions_have_the_same_view_and_cut_and_are_defined(wrong, meant):
    with pytest.raises(ValueError, match="unknown metric") as error:
        RankCollection([wrong])
    suggested = re.search(r"did you mean (.*)\? Rank", str(error.value))
    assert set(re.findall("'([^']*)'", suggested[1] if suggested else "")) <= meant


def test_repeats_count_once_in_the_order_of_the_names():
    assert keys(["z_mrr", "mrr", "ihmr", "MRR", "zmrr", "power_mean_rank_1", "mr"]) == [
        "z_mrr",
        "mrr",
        "mr",
    ]
    assert keys(["adjusted_mrr", "mrr"], views=["base", "adjusted_index"]) == [
        "adjusted_mrr",
        "mrr",
    ]
    assert keys(["mr"], views=["base", "base"], sides=["tail", "tail"]) == ["tail_mr"]
    with pytest.raises(ValueError, match="metric key 'half' is an attribute of every collection"):
        RankCollection({"half": "mrr"})
    with pytest.raises(ValueError, match="'mr' is in the collection already"):
        RankCollection([MeanRank(), MeanRank()])


def test_products_of_views_rank_types_and_sides_skip_undefined_combinations():
    options = {
        "views": ["base", "z_score"],
        "rank_types": ["realistic", "pessimistic"],
        "sides": ["both", "head"],
    }
    assert keys(["mrr", "amri", "tail.best.mr"], **options) == [
        *("mrr", "z_mrr", "pessimistic_mrr", "pessimistic_z_mrr"),
        *("head_mrr", "head_z_mrr", "head_pessimistic_mrr", "head_pessimistic_z_mrr"),
        # a name with a view keeps it
        *("amri", "pessimistic_amri", "head_amri", "head_pessimistic_amri"),
        *("tail_optimistic_mr", "tail_optimistic_z_mr"),  # and its side and rank type
    ]
    views = ["base", "normalized", "adjusted_index", "z_score", "p_value"]
    assert keys(["count", "rank_std"], views=views) == ["count", "rank_std", "normalized_rank_std"]
    assert keys(["hmr", "gmr"], rank_types=["realistic", "expected"]) == [
        "hmr",
        "gmr",
        "expected_gmr",
    ]
    assert "p_median_rank" not in keys(["median_rank"], views=views)


@pytest.mark.parametrize(
    ("option", "synonym", "value"),
    [
        ("rank_types", "worst", "pessimistic"),
        ("rank_types", "Best", "optimistic"),
        ("rank_types", "avg", "realistic"),
        ("sides", "left", "head"),
        ("sides", "right", "tail"),
        ("views", "z", "z_score"),
        ("views", "adjusted", "adjusted_index"),
    ],
)
def test_options_accept_the_synonyms_of_names(option, synonym, value):
    assert keys(["mrr"], **{option: [synonym]}) == keys(["mrr"], **{option: [value]})
    assert keys(["mrr"], **{option: synonym}) == keys(["mrr"], **{option: value})


@pytest.mark.parametrize("wrong", ["nonsense", [], ["nonsense"], 3])
@pytest.mark.parametrize("option", ["views", "rank_types", "sides"])
def test_options_are_checked_even_if_no_name_uses_them(wrong, option):
    with pytest.raises(ValueError, match=f"{option} must be"):
        RankCollection(["head.worst.amri", "count"], **{option: wrong})


def test_dict_entries_and_instances_are_taken_as_they_are():
    options = {"views": ["z_score"], "rank_types": ["pessimistic"], "sides": ["tail"]}
    collection = RankCollection(
        {"second": "mrr", "first": HitsAtK(3), "third": "head.amri"}, **options
    )
    assert list(collection.keys()) == ["second", "first", "third"]
    assert [member.key for member in collection.values()] == ["mrr", "hits_at_3", "head_amri"]
    assert keys([HitsAtK(7), "mrr"], **options) == ["hits_at_7", "tail_pessimistic_z_mrr"]


@pytest.mark.parametrize("key", ["a/b", "A", "", "1x", 3], ids=str)
def test_a_key_is_a_word_of_lower_case_letters(key):
    with pytest.raises(ValueError, match=re.escape("key must match [a-z][a-z0-9_]*")):
        RankCollection({key: "mrr"})


@pytest.mark.parametrize("entry", [3, None, ("mrr",)], ids=str)
def test_an_entry_of_another_type_is_an_error(entry):
    with pytest.raises(TypeError, match="a metric must be a RankDefinition"):
        RankCollection([entry])


def test_keys_are_those_of_compute_in_order_with_prefix_and_postfix():
    names = ["z_mrr", "mr", "tail.best.hits@3", "amri", "count", "adjusted_mrr"]
    collection = RankCollection(names, prefix="val/", postfix="_epoch")
    assert list(collection.keys())[:2] == ["val/z_mrr_epoch", "val/mr_epoch"]
    collection.update(Ranks([1, 2], None, 9), side="tail")
    assert list(collection.keys()) == list(collection.compute().keys())
    assert next(iter(collection.clone(prefix="test/").keys())) == "test/z_mrr_epoch"
    assert [key for key, _ in collection.items()] == list(collection.keys())


@pytest.fixture
def monitored():
    names = "mrr mr z_mr tail_pessimistic_gmr p_mrr hits_at_3 rank_std tie_rate"
    collection = RankCollection(names.split(), prefix="val/")
    collection.add_metrics({"mine": MeanRank()})
    return collection


@pytest.mark.parametrize(
    ("name", "key", "mode"),
    [
        ("mrr", "mrr", "max"),
        ("val/mrr", "mrr", "max"),
        ("zmr", "z_mr", "max"),
        ("val/hits@3", "hits_at_3", "max"),
        ("tail.worst.gmr", "tail_pessimistic_gmr", "min"),
        ("p_mrr", "p_mrr", "min"),
        ("mine", "mine", "min"),
    ],
)
def test_monitor_is_the_key_and_the_direction_of_any_name(name, key, mode, monitored):
    assert monitored.monitor(name) == {"monitor": f"val/{key}", "mode": mode}
    assert monitored[name] is monitored[key]


@pytest.mark.parametrize("name", ["rank_std", "std", "tie_rate"])
def test_a_metric_without_a_direction_has_no_monitor(name, monitored):
    with pytest.raises(ValueError, match="no direction"):
        monitored.monitor(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("z_mrr", "'z_mrr' is not in the collection; it has"),
        ("nonsense", "unknown metric"),
    ],
    ids=["z_mrr", "nonsense"],
)
def test_a_name_that_is_not_in_the_collection_raises(name, message, monitored):
    with pytest.raises(ValueError, match=message):
        monitored.monitor(name)
    with pytest.raises(KeyError, match=message):
        monitored[name]
