# Every target that needs the environment builds it first, from requirements.txt; a complete one costs nothing.

# The interpreter to build the environment with; if empty, python3.11, or python3 where that is Python 3.11.
PYTHON ?=
# More arguments for the command: make run ARGS="--help", make test ARGS="-k lock".
ARGS ?=

# Commands that are kept, one file of flags each.
STUDIES := experiments/studies
# What make run trains without ARGS, and where its report goes: the paper's six methods, on digits.
DEMO := --flagfile=$(STUDIES)/demo.flags
DEMO_REPORT := out/digits/report
# With GPU=1, make venv installs what TensorFlow needs for NVIDIA GPUs, too.
GPU ?=
# What make notebook opens.
NOTEBOOK ?= docs/quickstart.ipynb
# What make bench measures: the name of a module in benchmarks/.
NAME ?= local_training

# What make paper trains: a data set of the paper, in some splits, by some methods; ROUNDS=10 stops after ten rounds.
TASK ?= mnist
# Each is a name or a pattern of a preset's part; the set of methods called paper is in experiments/methods.py.
SPLITS ?= *
METHODS ?= paper
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
.PHONY: help venv run notebook test test-long lint lock lock-check audit bench bench-peers gpu-check
.PHONY: paper paper-mnist paper-seeds paper-baselines clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

venv: ## Build .venv from requirements.txt (PYTHON=... names the interpreter; GPU=1 adds NVIDIA's libraries)
	@PYTHON="$(PYTHON)" tools/install.sh
	@[ -z "$(GPU)" ] || exec tools/gpu.sh

run: venv ## Compare the paper's six methods on digits, or run any experiment: make run ARGS="--preset=..."
ifneq ($(ARGS),)
	@exec $(REAP) run_experiment.py $(ARGS)
else
	@$(REAP) run_experiment.py $(DEMO)
	@$(PY) make_report.py out/digits --output=$(DEMO_REPORT) --nosplits
	@echo
	@echo 'Open $(DEMO_REPORT)/report.html in a browser. Next, after `source .venv/bin/activate`:'
	@echo '  python run_experiment.py --grid=l1=1e-2,1e-3,1e-4   # other penalties'
	@echo '  python run_experiment.py --task=mnist --split=dirichlet:0.3   # a cell of the paper'"'"'s tables'
	@echo '  python run_experiment.py --help'
endif

notebook: venv ## Open docs/quickstart.ipynb in Jupyter, which gets an environment of its own (NOTEBOOK=... names another)
	@exec tools/notebook.sh "$(NOTEBOOK)" $(ARGS)

test: venv ## Run the tests but for the long ones
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m "not long" tests $(ARGS)

test-long: venv ## Run the long tests: experiments killed at random instants, all of TFF on each runtime
	@exec $(REAP) -m pytest -q -n auto --maxprocesses 4 --dist loadgroup -m long tests $(ARGS)

lint: venv ## Check style, types and who imports whom
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-cache

lock: venv ## Write the generated part of requirements.txt anew, and the hashes in requirements.lock
	@$(PY) tools/lock.py write

lock-check: venv ## Check requirements.txt against what the packages require
	@$(PY) tools/lock.py check

audit: ## Check the locked versions against what is publicly known about them (pip-audit, which needs the network)
	@PYTHON="$(PYTHON)" exec tools/audit.sh

bench: venv ## Measure: make bench NAME=local_training, codec, store, accounting, long_run, ...
	@exec $(REAP) -m benchmarks.$(NAME) $(ARGS)

gpu-check: venv ## Compare the GPUs of this machine with its CPU, and print a verdict; says so where there is none
	@exec $(REAP) -m benchmarks.gpu_check $(ARGS)

bench-peers: venv ## Time rounds against TFF, FedJAX, PyTorch, pfl-research and Flower, which get environments of their own
	@exec $(REAP) -m benchmarks.bench_peers $(ARGS)

paper: venv ## The paper's experiments on a data set: make paper TASK=cifar10 METHODS="NAME NAME" ROUNDS=10
	@$(REAP) run_experiment.py --output=$(PAPER) $(if $(ROUNDS),--rounds=$(ROUNDS)) \
	  '--grid=preset=$(subst $(empty) $(empty),$(comma),$(CELLS))' $(ARGS)
	@exec $(PY) make_report.py $(PAPER) --output=$(PAPER)/report

paper-mnist: ## The same on MNIST: eight methods, three splits, 100 rounds each, about an hour; may be stopped and resumed
	@$(MAKE) --no-print-directory paper TASK=mnist

paper-seeds: venv ## Three seeds each of a dense method, a sparse one, and that one through the quantised codec; MNIST
	@for study in $(STUDIES)/seeds-*.flags; do $(REAP) run_experiment.py --flagfile=$$study $(ARGS) || exit; done

paper-baselines: venv ## Other ways to send less, and one algorithm by l1 and threshold; MNIST, about half an hour
	@for study in $(STUDIES)/baselines-*.flags; do $(REAP) run_experiment.py --flagfile=$$study $(ARGS) || exit; done

clean: ## Remove the environment and all caches; results in out/ stay
	rm -rf .venv .venv-audit .venv-notebook .venv-peers build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
