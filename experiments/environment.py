"""Imported first by the commands: says what to do where the environment is missing, and keeps TensorFlow quiet.

Standard library alone, and in words that any Python 3 reads.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("tensorflow_federated") is None:
    sys.exit(
        "%s has no TensorFlow Federated. Run `make venv` once, then `source .venv/bin/activate` in each new shell."
        % (sys.executable or "This Python")
    )

# Before TensorFlow is imported, which reads it then: no word of missing GPUs and of registered factories.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
