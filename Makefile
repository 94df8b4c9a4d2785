# Every target that needs the environment builds it first, from requirements.txt; a complete one costs nothing.

# The interpreter to build the environment with; if empty, python3.11, or python3 where that is Python 3.11.
PYTHON ?=
# More arguments for the command: make run ARGS="--help", make test ARGS="-k lock".
ARGS ?=

# What make run trains without ARGS: two methods, and what the threshold and the l1 penalty each do alone.
DEMO := --output=out/digits --grid=preset=digits/iid/fed_prox,digits/iid/algorithm_1,digits/iid/threshold_1,digits/iid/proximal_1
# What make bench measures: the name of a module in benchmarks/.
NAME ?= local_training

PY := .venv/bin/python
# Ends the worker processes that TFF leaves behind; they would keep `make test | tail` waiting. Called with exec, so
# that no shell stands between it and the signals that make passes on.
REAP := $(PY) tools/reap.py $(PY)

.DEFAULT_GOAL := help
.PHONY: help venv run test test-long lint lock lock-check bench clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

venv: ## Build .venv from requirements.txt (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" exec tools/install.sh

run: venv ## Compare methods on digits, or run any experiment: make run ARGS="--preset=..."
	@exec $(REAP) run_experiment.py $(or $(ARGS),$(DEMO))

test: venv ## Run the tests but for the long ones
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m "not long" tests $(ARGS)

test-long: venv ## Run the long tests: experiments killed at random instants, all of TFF on each runtime
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadgroup -m long tests $(ARGS)

lint: venv ## Check style and types
	@$(PY) -m ruff check .
	@$(PY) -m mypy

lock: venv ## Write the generated part of requirements.txt anew
	@$(PY) tools/lock.py write

lock-check: venv ## Check requirements.txt against what the packages require
	@$(PY) tools/lock.py check

bench: venv ## Measure: make bench NAME=local_training, codec, store, accounting, long_run, ...
	@exec $(REAP) -m benchmarks.$(NAME) $(ARGS)

clean: ## Remove the environment and all caches; results in out/ stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
