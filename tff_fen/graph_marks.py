"""Marks arithmetic that treats every element alike, so that a runtime can do it in one pass over memory.

TensorFlow runs `a * x + y` as two operations, each of which reads and writes every element.
For a small model these passes take as long as the matrix products. What is marked here stays
one call in the graph, which `runtime/fusing.py` replaces by a loop of its own, to the same bits;
every other runtime takes the operations as they are, as if nothing had been marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

# A function is known by its name: attributes of our own do not survive on the way to a runtime.
NAME = "tff_fen_elementwise"
# What TensorFlow calls the arguments that are the same for all elements; `_1`, `_2` and so on follow.
SCALARS = "scalars"

Tensors = Sequence[tf.Tensor]


def map_tensors(
    function: Callable[..., tuple[tf.Tensor, ...]], scalars: Tensors, *columns: Tensors
) -> list[tuple[tf.Tensor, ...]]:
    """Returns `zip(*map(partial(function, *scalars), *columns))`; call it inside a `tf.function`.

    Args:
      function: arithmetic on float32, element by element: of the scalars and one tensor of
        each column, all of one shape, and of nothing else but Python's numbers. Returns a
        tuple of tensors of that shape.
      scalars: tensors of shape [].
      *columns: as many tensors each, such as all weights and all their gradients.

    Raises:
      ValueError: if the shapes are others, or the function uses other tensors too.
    """
    rows = list(zip(*columns, strict=True))
    shapes = [[tensor.shape for tensor in row] for row in rows]
    fits = all(shape.is_compatible_with(row[0]) for row in shapes for shape in row)
    if not fits or not all(scalar.shape.is_compatible_with([]) for scalar in scalars):
        raise ValueError(f"Expected scalars, and tensors of one shape, found {[s.shape for s in scalars]}, {shapes}.")

    def tff_fen_elementwise(columns: Sequence[Tensors], scalars: Tensors) -> list[tuple[tf.Tensor, ...]]:
        return list(zip(*(function(*scalars, *tensors) for tensors in zip(*columns, strict=True)), strict=True))

    call = tf.function(tff_fen_elementwise, autograph=False)
    arguments = [tuple(column) for column in columns], list(scalars)
    captured = call.get_concrete_function(*arguments).captured_inputs
    if captured:
        raise ValueError(f"Expected a function of its arguments alone, found that it uses {captured} too.")
    return call(*arguments)
