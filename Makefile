# Every target that needs the environment builds it first, from requirements.txt; a complete one costs nothing.

# The interpreter to build the environment with; if empty, python3.11, or python3 where that is Python 3.11.
PYTHON ?=
# More arguments for the command: make run ARGS="--help", make test ARGS="-k lock".
ARGS ?=

PY := .venv/bin/python
# Ends the worker processes that TFF leaves behind; they would keep `make test | tail` waiting. Called with exec, so
# that no shell stands between it and the signals that make passes on.
REAP := $(PY) tools/reap.py $(PY)

.DEFAULT_GOAL := help
.PHONY: help venv run test lint lock lock-check bench clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

venv: ## Build .venv from requirements.txt (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" exec tools/install.sh

run: venv ## Run the experiment: make run ARGS="..."
	@exec $(REAP) run_experiment.py $(ARGS)

test: venv ## Run the quick tests
	@exec $(REAP) -m pytest -q tests $(ARGS)

lint: venv ## Check style and types
	@$(PY) -m ruff check .
	@$(PY) -m mypy

lock: venv ## Write the generated part of requirements.txt anew
	@$(PY) tools/lock.py write

lock-check: venv ## Check requirements.txt against what the packages require
	@$(PY) tools/lock.py check

bench: venv ## Time local training
	@exec $(REAP) -m benchmarks.local_training $(ARGS)

clean: ## Remove the environment and all caches; results in out/ stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
