"""Measurements: `python -m benchmarks.NAME`, or `make bench NAME=...`. What they print is theirs alone."""

import os

# Before TensorFlow is imported, by whichever of them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import flags, logging

# As if given on the command line: absl's app.run would set a default to INFO.
flags.FLAGS.verbosity = logging.ERROR
