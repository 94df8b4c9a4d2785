"""FedElasticNet (Kim et al., 2022) on TensorFlow Federated."""

from tff_fen import aggregators, program, runtime
from tff_fen.aggregators import FixedDenominatorFactory, build_dp_factory, build_dp_pair
from tff_fen.algorithms.fed_avg import build_fed_avg
from tff_fen.algorithms.fed_avg_clients import build_fed_avg_clients
from tff_fen.algorithms.fed_dyn import build_fed_dyn
from tff_fen.algorithms.scaffold import build_scaffold
from tff_fen.client_work.keras_models import from_keras_model
from tff_fen.client_work.trainer import Trainer
from tff_fen.config import L1_STEPS, ElasticNet, LocalTraining
from tff_fen.fused_lstm import fuse_lstm
from tff_fen.process import Algorithm, ClientInput, StatefulClientProcess, Train, Update, Uplink, compose_process
from tff_fen.program.mlflow_release import MlflowReleaseManager
from tff_fen.program.run_rounds import run_rounds
from tff_fen.program.weights import load_weights
from tff_fen.version import __version__

__all__ = [
    "L1_STEPS",
    "Algorithm",
    "ClientInput",
    "ElasticNet",
    "FixedDenominatorFactory",
    "LocalTraining",
    "MlflowReleaseManager",
    "StatefulClientProcess",
    "Train",
    "Trainer",
    "Update",
    "Uplink",
    "__version__",
    "aggregators",
    "build_dp_factory",
    "build_dp_pair",
    "build_fed_avg",
    "build_fed_avg_clients",
    "build_fed_dyn",
    "build_scaffold",
    "compose_process",
    "from_keras_model",
    "fuse_lstm",
    "load_weights",
    "program",
    "run_rounds",
    "runtime",
]
