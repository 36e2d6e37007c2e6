# `make check` is the one command that checks everything; PYTHON names the interpreter of the environment to use.
PYTHON ?= .venv/bin/python

.PHONY: check lint test format

check: lint test

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n 2

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
