# Every target that needs the environment builds it first, from requirements.txt; a complete one costs nothing.

# The interpreter to build the environment with; if empty, python3.11, or python3 where that is Python 3.11.
PYTHON ?=
# More arguments for the command: make run ARGS="--help", make test ARGS="-k lock".
ARGS ?=

# What make run trains without ARGS: two methods, and what the threshold and the l1 penalty each do alone.
DEMO := --output=out/digits --grid=preset=digits/iid/fed_prox,digits/iid/algorithm_1,digits/iid/threshold_1,digits/iid/proximal_1
# What make bench measures: the name of a module in benchmarks/.
NAME ?= local_training

# What make paper trains: a data set of the paper, in some splits, by some methods; ROUNDS=10 stops after ten rounds.
TASK ?= mnist
SPLITS ?= $(if $(filter shakespeare,$(TASK)),iid natural,iid dirichlet_0.6 dirichlet_0.3)
METHODS ?= fed_prox scaffold fed_dyn algorithm_1 algorithm_2 algorithm_3 threshold_3 proximal_3
ROUNDS ?=
empty :=
comma := ,
CELLS = $(foreach split,$(SPLITS),$(foreach method,$(METHODS),$(TASK)/$(split)/$(method)))
PAPER = out/paper/$(TASK)

PY := .venv/bin/python
# Ends the worker processes that TFF leaves behind; they would keep `make test | tail` waiting. Called with exec, so
# that no shell stands between it and the signals that make passes on.
REAP := $(PY) tools/reap.py $(PY)

.DEFAULT_GOAL := help
.PHONY: help venv run test test-long lint lock lock-check bench paper paper-mnist paper-seeds paper-baselines clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

venv: ## Build .venv from requirements.txt (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" exec tools/install.sh

run: venv ## Compare methods on digits, or run any experiment: make run ARGS="--preset=..."
	@exec $(REAP) run_experiment.py $(or $(ARGS),$(DEMO))

test: venv ## Run the tests but for the long ones
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m "not long" tests $(ARGS)

test-long: venv ## Run the long tests: experiments killed at random instants, all of TFF on each runtime
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadgroup -m long tests $(ARGS)

lint: venv ## Check style, types and who imports whom
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-cache

lock: venv ## Write the generated part of requirements.txt anew
	@$(PY) tools/lock.py write

lock-check: venv ## Check requirements.txt against what the packages require
	@$(PY) tools/lock.py check

bench: venv ## Measure: make bench NAME=local_training, codec, store, accounting, long_run, ...
	@exec $(REAP) -m benchmarks.$(NAME) $(ARGS)

paper: venv ## The paper's experiments on a data set: make paper TASK=cifar10 METHODS="fed_dyn algorithm_3" ROUNDS=10
	@$(REAP) run_experiment.py --output=$(PAPER) $(if $(ROUNDS),--rounds=$(ROUNDS)) \
	  --grid=preset=$(subst $(empty) $(empty),$(comma),$(CELLS)) $(ARGS)
	@exec $(PY) make_report.py $(PAPER) --output=$(PAPER)/report

paper-mnist: ## The same on MNIST: eight methods, three splits, 100 rounds each, about an hour; may be stopped and resumed
	@$(MAKE) --no-print-directory paper TASK=mnist

paper-seeds: venv ## Three seeds each of FedDyn, Algorithm 3, and Algorithm 3 trained through the quantised codec; MNIST
	@$(REAP) run_experiment.py --output=out/paper/seeds/dense \
	  --grid=preset=mnist/iid/fed_dyn,mnist/iid/algorithm_3 --grid=seed=0,1,2 $(ARGS)
	@exec $(REAP) run_experiment.py --output=out/paper/seeds/quantised --preset=mnist/iid/algorithm_3 \
	  --uplink=quantised:0.015 --grid=seed=0,1,2 $(ARGS)

paper-baselines: venv ## Other ways to send less, and Algorithm 3 by l1 and threshold; MNIST, about half an hour
	@$(REAP) run_experiment.py --output=out/paper/pareto/codec --preset=mnist/iid/fed_dyn \
	  --grid=uplink=float16,quantised:0.015 $(ARGS)
	@$(REAP) run_experiment.py --output=out/paper/pareto/compression --aggregator=compression \
	  --grid=preset=mnist/iid/fed_prox,mnist/iid/fed_dyn $(ARGS)
	@$(REAP) run_experiment.py --output=out/paper/pareto/top_k --preset=mnist/iid/fed_avg --grid=top_k=0.1,0.01 $(ARGS)
	@$(REAP) run_experiment.py --output=out/paper/l1/subgradient --preset=mnist/iid/algorithm_3 \
	  --grid=l1=1e-2,1e-3,1e-5 $(ARGS)
	@$(REAP) run_experiment.py --output=out/paper/l1/proximal --preset=mnist/iid/proximal_3 \
	  --grid=l1=1e-2,1e-3,1e-5 $(ARGS)
	@exec $(REAP) run_experiment.py --output=out/paper/threshold --preset=mnist/iid/algorithm_3 \
	  --grid=threshold=2e-3,1e-2 $(ARGS)

clean: ## Remove the environment and all caches; results in out/ stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
