"""FedElasticNet (Kim et al., ICLR 2023) on TensorFlow Federated."""

from tff_fen import runtime
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.fed_avg import build_fed_avg

__all__ = ["ElasticNet", "LocalTraining", "build_fed_avg", "runtime"]
