"""Trains one of the algorithms on real data, counts what it sends, and can be stopped and resumed at any instant.

    python run_experiment.py --task=mnist --split=dirichlet:0.3 --algorithm=fed_dyn --l1=1e-4 --l2=5e-2 --threshold=5e-3
    python run_experiment.py --preset=mnist/dirichlet_0.3/algorithm_3          # a cell of the paper's tables
    python run_experiment.py --preset='mnist/*/paper'                          # all of them, on MNIST
    python run_experiment.py --preset=mnist/iid/algorithm_3 --grid=l1=1e-2,1e-4,1e-6,1e-8
    python run_experiment.py --algorithm=my_module:build_my_algorithm --task=my_module:load_my_task
    python run_experiment.py --flagfile=my.flags

The same command again goes on where the last one ended. `--helpfull` lists all flags.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app

from experiments.run_command import main

if __name__ == "__main__":
    app.run(main)
