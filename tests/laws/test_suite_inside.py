"""The suite once more where a plain test on a CPU never is: inside inference mode, and with another default device.

Lightning evaluates in that mode on NCCL; what the library makes without saying where is on "meta", without values.
The first case of every test function, in the long profile (``HYPOTHESIS_PROFILE=explore``) every case.
"""

import os
from pathlib import Path

import pytest

from scripts import forked

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
# what starts processes of its own or trains, where neither follows, what knows NumPy only, and what tries many cases
LEFT_OUT = {
    "test_across",
    "test_adjust",
    "test_auc",
    "test_audit",
    "test_audit_page",
    "test_calibration",
    "test_candidate_parallel",
    "test_cli",
    "test_cli_audit",
    "test_cli_bad_input",
    "test_cli_decisions",
    "test_cli_help",
    "test_cli_json_and_gates",
    "test_cli_report",
    "test_cli_study",
    "test_compare_models",
    "test_datasets",
    "test_ddp_examples",
    "test_docs",
    "test_environments",
    "test_equivalence",
    "test_exact_ranks",
    "test_exact_tails",
    "test_expectation",
    "test_expectation_large",
    "test_files",
    "test_foundation",
    "test_fuzz_ranking",
    "test_fuzz_state",
    "test_host_scripts",
    "test_hoyt_table",
    "test_intervals",
    "test_layout",
    "test_lightning",
    "test_notebook",
    "test_ogb",
    "test_page",
    "test_paired_tests",
    "test_plots",
    "test_plots_across",
    "test_presets",
    "test_processes",
    "test_public_names",
    "test_pyg",
    "test_pykeen_evaluator",
    "test_pykeen_first_words",
    "test_pykeen_loop",
    "test_pykeen_parity",
    "test_pykeen_pipeline",
    "test_pykeen_tables",
    "test_queries",
    "test_queries_moments",
    "test_queries_significance",
    "test_queries_values",
    "test_quickstart",
    "test_readme",
    "test_rendered_results",
    "test_rendering",
    "test_retrieval_pages",
    "test_second_device",
    "test_sequences",
    "test_signatures",
    "test_significance",
    "test_studies",
    "test_study",
    "test_suite_inside",
    "test_sync",
    "test_sync_faults",
    "test_sync_lifecycle",
    "test_sync_options",
    "test_trec",
    "test_values",
    "test_wheel",
}


def test_every_file_passes_inside_inference_mode_and_with_another_default_device() -> None:
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if path.stem not in LEFT_OUT]
    assert not LEFT_OUT - {path.stem for path in TESTS.rglob("test_*.py")}, "a file that is left out is gone"
    options = ["--inference-mode", "--default-device", "meta", "-q", "-p", "no:cacheprovider"]
    # what a test of both modes has once inside, and would have twice, a few that start processes, and simulations
    options += ["-k", "not no_inference_mode and not processes and not uniform"]
    environment = {}
    if os.environ.get("HYPOTHESIS_PROFILE") != "explore":  # all cases of all of them take minutes
        options, environment = [*options, "--first-cases"], {"HYPOTHESIS_PROFILE": "few"}
    result = forked("-m", "pytest", *options, *map(str, files), cwd=TESTS.parent, environment=environment)
    assert result.returncode == 0, result.stdout[-4000:]
