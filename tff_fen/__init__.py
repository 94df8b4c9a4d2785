"""FedElasticNet (Kim et al., ICLR 2023) on TensorFlow Federated."""

from tff_fen import runtime
from tff_fen.aggregators.dp import build_dp_factory, build_dp_pair
from tff_fen.aggregators.mean_and_count import FixedDenominatorFactory
from tff_fen.algorithms.fed_avg import build_fed_avg
from tff_fen.algorithms.fed_avg_clients import build_fed_avg_clients
from tff_fen.algorithms.fed_dyn import build_fed_dyn
from tff_fen.algorithms.scaffold import build_scaffold
from tff_fen.config import L1_STEPS, ElasticNet, LocalTraining
from tff_fen.process import ClientInput, StatefulClientProcess
from tff_fen.version import __version__

__all__ = [
    "L1_STEPS",
    "ClientInput",
    "ElasticNet",
    "FixedDenominatorFactory",
    "LocalTraining",
    "StatefulClientProcess",
    "__version__",
    "build_dp_factory",
    "build_dp_pair",
    "build_fed_avg",
    "build_fed_avg_clients",
    "build_fed_dyn",
    "build_scaffold",
    "runtime",
]
