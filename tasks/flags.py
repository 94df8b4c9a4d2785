"""absl flags that name a task; shared by all commands."""

from __future__ import annotations

import pathlib

from absl import app, flags, logging

from tasks.models import INITIALIZERS
from tasks.registry import load_task, task_names
from tasks.sources import DataUnavailableError, Places
from tasks.task import Task

TASK = flags.DEFINE_string("task", "digits", f"The data set: {', '.join(task_names())}.")
SPLIT = flags.DEFINE_string("split", None, "iid, dirichlet:ALPHA, shards:NUMBER or natural; by default the task's own.")
NUM_CLIENTS = flags.DEFINE_integer("num_clients", None, "Clients in the population; by default the task's own number.")
SIZE_SIGMA = flags.DEFINE_float("size_sigma", 0.0, "Of the lognormal distribution of the clients' sizes; 0: equal.")
SEED = flags.DEFINE_integer("seed", 0, "Seed of split, initial weights, client sampling and shuffling.", lower_bound=0)
INITIALIZER = flags.DEFINE_enum("initializer", "keras", INITIALIZERS, "Initial weights as Keras or PyTorch draws them.")
ALPHA = flags.DEFINE_float("alpha", 1.0, "Of synthetic(alpha, beta).")
BETA = flags.DEFINE_float("beta", 1.0, "Of synthetic(alpha, beta).")
DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder with the original files, or prepared by TensorFlow Datasets.")
CACHE_DIR = flags.DEFINE_string("cache_dir", None, "Where data sets are kept; by default $TFF_FEN_CACHE or ~/.cache.")


def load_task_from_flags() -> tuple[Task, str]:
    """Returns the task that the flags name, and its description; raises `app.UsageError` if they are wrong."""
    logging.set_verbosity(logging.WARNING)  # TFF tells of each metric it adds
    places = Places(*(pathlib.Path(flag.value) if flag.value else None for flag in (DATA_DIR, CACHE_DIR)))
    try:
        task = load_task(
            TASK.value,
            split=SPLIT.value,
            num_clients=NUM_CLIENTS.value,
            size_sigma=SIZE_SIGMA.value,
            seed=SEED.value,
            initializer=INITIALIZER.value,
            places=places,
            alpha=ALPHA.value,
            beta=BETA.value,
        )
    except (ValueError, TypeError, DataUnavailableError) as error:
        raise app.UsageError(str(error)) from error
    return task, " ".join(filter(None, [TASK.value, SPLIT.value]))
