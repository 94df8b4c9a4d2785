"""From the values of an experiment to what its rounds are made of: process, data, sampling, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

import tff_fen
from experiments.aggregation import Aggregation, build_aggregation
from experiments.experiment_config import ExperimentConfig
from experiments.foreign import call_with, check_keyword, hyperparameters_of, is_foreign, load_function, title_of
from experiments.hyperparameters import parse_hyperparameters
from experiments.methods import Method, method_of
from experiments.settings import FIELDS, parse_sampling
from tasks.evaluation import Evaluator
from tasks.task import Task
from tff_fen.program import sampling

# Keywords that an experiment gives to a builder whose signature has them; docs/extending.md lists them.
KEYWORDS = (
    "model", "elastic_net", "local_training", "num_clients", "aggregator", "codec", "compressor", "error_feedback",
    "release_messages", "measurements",
)  # fmt: skip
# And those that have defaults of their own in TFF's sense; no flag sets them.
_LEFT_ALONE = ("metrics_aggregator", "client_weighting")
# A user's builder that takes no such keyword cannot do what the setting asks for.
_NEEDS_KEYWORD = {
    "l1": "elastic_net", "l2": "elastic_net", "threshold": "elastic_net", "aggregator": "aggregator", "uplink": "codec",
    "compressor": "compressor", "error_feedback": "error_feedback",
}  # fmt: skip


class Parts(NamedTuple):
    """What the rounds of an experiment are made of.

    Attributes:
      process: from `build_process`.
      aggregation: what it was built with.
      client_dataset: `(k -> tf.data.Dataset)`.
      sample: `(round -> sorted client ids)`, a pure function.
      evaluator: of models.
    """

    process: tff_fen.StatefulClientProcess
    aggregation: Aggregation
    client_dataset: Callable[[int], Any]
    sample: Callable[[int], np.ndarray]
    evaluator: Evaluator


def build_parts(config: ExperimentConfig, task: Task) -> Parts:
    """Builds what the rounds of an experiment are made of."""
    kind, amount = parse_sampling(config.sampling)
    m = len(task.clients)
    aggregation = build_aggregation(config, amount if kind == "uniform" else amount * m)
    local_training = config.local_training(task.batch_size, task.augment)
    process = build_process(config, task.build_model(), local_training, m, aggregation)

    def sample(round_number: int) -> np.ndarray:
        if kind == "uniform":
            return sampling.sample_uniform(round_number, m, int(amount), config.seed)
        return sampling.sample_bernoulli(round_number, m, amount, config.seed)

    return Parts(process, aggregation, task.client_dataset, sample, Evaluator(task))


def build_process(
    config: ExperimentConfig,
    model: tff.learning.models.FunctionalModel,
    local_training: tff_fen.LocalTraining,
    num_clients: int,
    aggregation: Aggregation,
) -> tff_fen.StatefulClientProcess:
    """Builds the experiment's process, which gives back messages if clients are measured and its builder can do so."""
    row = config.row()
    builder = load_function("algorithm", row.builder)
    keywords = dict(
        model=model,
        elastic_net=config.elastic_net(),
        local_training=local_training,
        num_clients=num_clients,
        aggregator=aggregation.first,
        codec=config.codec(),
        compressor=config.build_compressor(),
        error_feedback=config.error_feedback,
        release_messages=config.measures_clients,
        measurements=config.measures_clients,
    )
    keywords |= {name: getattr(config, name) for name in row.settings}
    if row.second_aggregator is not None:
        keywords[row.second_aggregator] = aggregation.second
    keywords |= _own_hyperparameters(config, builder)
    process = call_with(builder, keywords)
    if not isinstance(process, tff_fen.StatefulClientProcess):
        raise TypeError(
            f"algorithm={config.algorithm!r} must return a tff_fen.StatefulClientProcess, found "
            f"{type(process).__name__}. Make it with tff_fen.compose_process."
        )
    if config.aggregator == "dp" and len(process.releases) > 1 and aggregation.second is None:
        raise ValueError(
            f"aggregator='dp' cannot be used with algorithm={config.algorithm!r}: of each client it releases "
            f"{', '.join(process.releases)}, and noise is accounted for one of them. Take another aggregator."
        )
    return process


def check_algorithm(config: ExperimentConfig) -> None:
    """Raises if a user's algorithm cannot be imported or cannot be called with what is set."""
    if is_foreign(config.algorithm):
        builder = load_function("algorithm", config.algorithm)
        _own_hyperparameters(config, builder)
        for name, keyword in _NEEDS_KEYWORD.items():
            if getattr(config, name) != FIELDS[name].default:
                check_keyword(name, getattr(config, name), builder, keyword)


def _own_hyperparameters(config: ExperimentConfig, builder: Callable[..., Any]) -> dict[str, Any]:
    if not is_foreign(config.algorithm):
        return config.own_hyperparameters()
    known = hyperparameters_of(builder, (*KEYWORDS, *_LEFT_ALONE))
    return parse_hyperparameters(config.hyperparameters, known, builder.__name__)


def describe_method(config: ExperimentConfig) -> dict[str, str]:
    """Returns what `config.json` says of the method, so that a report need not import a user's code."""
    title = title_of(load_function("algorithm", config.algorithm), "build_") if is_foreign(config.algorithm) else None
    method: Method = method_of(config.row(title), config)
    return {
        "key": method.key,
        "title": method.title,
        "algorithm": method.algorithm.title,
        "variant": method.variant.key,
    }
