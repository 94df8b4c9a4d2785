"""Trains algorithms on real data, counts what they send; can be stopped.

  python run_experiment.py                      the paper's Algorithm 3, digits
  python run_experiment.py --task=mnist --split=dirichlet:0.3 --l1=1e-3
  python run_experiment.py --preset=mnist/dirichlet_0.3/algorithm_3
                                                    a cell of the paper's tables
  python run_experiment.py --preset='mnist/*/paper'       all of them, on MNIST
  python run_experiment.py --preset=mnist/iid/algorithm_3 --grid=l1=1e-2,1e-4
                                                    a run for each value of l1
  python run_experiment.py --config=out/digits-algorithm_3/experiment.toml
                                                    a run from its own file
  python run_experiment.py --algorithm=my_module:build_mine   an own algorithm

The same command again goes on where the last one ended. Once per shell, before
it: source .venv/bin/activate
"""

from __future__ import annotations

import experiments.environment  # noqa: F401  first: it says what to do where there is no TensorFlow
from experiments import command_line
from experiments.run_command import main

if __name__ == "__main__":
    command_line.run(main, __doc__)
