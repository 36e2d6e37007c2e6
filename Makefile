# `make check` is the one command that checks everything; PYTHON names the interpreter of the environment to use.
PYTHON ?= .venv/bin/python

.PHONY: check lint test test-metric format docs images

check: lint test

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) tests/words.py

test:
	$(PYTHON) -m pytest -n 2

# tests of one metric, and of the tables that have every metric: make test-metric NAME=mrr
test-metric:
	$(PYTHON) -m pytest -q -n 0 tests/invariants/test_invariants.py tests/invariants/test_hard_inputs.py \
		tests/invariants/test_queries.py tests/metrics/test_values.py tests/metrics/test_names.py \
		tests/invariants/test_p_values.py tests/package/test_hoyt_table.py tests/package/test_docs.py \
		tests/package/test_public_names.py tests/cli/test_cli.py tests/rendering/test_rendering.py \
		tests/queries/test_queries_values.py tests/queries/test_queries_null.py \
		-k "$(NAME) or every_form or every_metric or every_name or that_contributing_adds or desiderata \
		or names_of_metrics or list_of_metrics or page_of_metrics"

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

# needs the extra "docs"; a warning is an error, and so is a link of the site that leads nowhere
docs:
	$(PYTHON) -m sphinx -b html -W --keep-going docs docs/_build/html
	$(PYTHON) docs/check_links.py docs/_build/html

# needs the extras "plot" and "examples"; run it when a page that draws has changed
images:
	$(PYTHON) docs/draw.py docs/comparable.md docs/comparing.md docs/tutorial.md docs/study.md
