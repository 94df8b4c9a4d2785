"""All passes in their two stages: the rounds of every algorithm have the loops that make them fast."""

from __future__ import annotations

from typing import Any

import pytest

import tff_fen
from tests.support import models
from tests.support.runtime_graphs import imported, loops_on_one_thread, marked_parts
from tff_fen.runtime.graph_parts import all_nodes

ELASTIC_NET = tff_fen.ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)
OTHERS = [
    tff_fen.ElasticNet(l1=1e-3, l2=0.1, l1_step="proximal"),
    tff_fen.ElasticNet(l2=0.1, l1_step="proximal"),
]


def processes(penalties: tff_fen.ElasticNet, clip_norm: float | None) -> list[Any]:
    model = models.two_layer_mlp()
    training = tff_fen.LocalTraining(0.1, batch_size=4, clip_norm=clip_norm, weight_decay=1e-3)
    return [
        tff_fen.build_fed_avg(model, penalties, training),
        tff_fen.build_scaffold(model, penalties, training, num_clients=3),
        tff_fen.build_fed_dyn(model, penalties, training, num_clients=3),
    ]


def assert_loops(computations: list[Any], clip_norm: float | None) -> None:
    """Asserts one training loop on one thread, with as many loops over the weights as clipping needs in it."""
    context = tff_fen.runtime.create_inprocess_context()
    graph_defs = [graph_def for c in computations for graph_def in imported(context._compile(c))]
    (loop,) = loops_on_one_thread(graph_defs)
    assert loop["StatelessWhile"] == 2  # of epochs, and of batches
    assert not {"Switch", "PartitionedCall"} & set(loop)
    # The forward pass and the gradient of two layers: two products, three, and none of the slow kernel.
    assert (loop["_MklMatMul"], loop["MatMul"]) == (5, 0)
    in_all = {node.op for g in graph_defs for node in all_nodes(g) if node.op.startswith("TffFenElementwise")}
    assert in_all <= set(loop) and len(in_all) == (1 if clip_norm is None else 2)
    assert "L2Loss" not in loop  # the norm to clip by is taken where the gradient is written


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_the_rounds_of_every_algorithm_have_the_loops(clip_norm: float | None) -> None:
    for process in processes(ELASTIC_NET, clip_norm):
        assert_loops([process.next], clip_norm)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("penalties", OTHERS, ids=["proximal", "no l1"])
def test_so_has_every_kind_of_step(penalties: tff_fen.ElasticNet, clip_norm: float | None) -> None:
    for process in processes(penalties, clip_norm):
        assert_loops(marked_parts(process.next), clip_norm)
