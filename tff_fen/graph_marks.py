"""Marks parts of a TensorFlow graph that a runtime may compute in its own way, and tells them from the rest.

There are two marks. `map_tensors` marks arithmetic that treats every element alike: TensorFlow runs
`a * x + y` as two operations, each of which reads and writes every element, and for a small model
these passes over memory take as long as the matrix products. `mark_loop` marks a client's training
loop. What is marked stays one call in the graph, which `tff_fen.runtime.passes` may replace; every
other runtime takes the operations as they are, as if nothing had been marked.

A mark is the name of a function, because attributes do not survive on the way to a runtime. No
other module knows these names.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

_ELEMENTWISE = "tff_fen_elementwise"
_LOOP = "tff_fen_loop"
_FOR_XLA = contextvars.ContextVar("tff_fen_for_xla", default=False)
# What TensorFlow calls the arguments that are the same for all elements; `_1`, `_2` and so on follow.
_SCALARS = "scalars"

Tensors = Sequence[tf.Tensor]


def map_tensors(
    function: Callable[..., tuple[tf.Tensor, ...]], scalars: Tensors, *columns: Tensors
) -> list[tuple[tf.Tensor, ...]]:
    """Returns `zip(*map(partial(function, *scalars), *columns))`; call it inside a `tf.function`.

    Args:
      function: arithmetic on float32, element by element: of the scalars and one tensor of
        each column, all of one shape, and of nothing else but Python's numbers. Returns a
        tuple of tensors of that shape; some may be `tf.nn.l2_loss` of one, a scalar.
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

    # The second parameter's name is what `is_scalar` recognises.
    def apply(columns: Sequence[Tensors], scalars: Tensors) -> list[tuple[tf.Tensor, ...]]:
        return list(zip(*(function(*scalars, *tensors) for tensors in zip(*columns, strict=True)), strict=True))

    if is_for_xla():
        return apply(columns, scalars)
    call = _mark(apply, _ELEMENTWISE)
    arguments = [tuple(column) for column in columns], list(scalars)
    captured = call.get_concrete_function(*arguments).captured_inputs
    if captured:
        raise ValueError(f"Expected a function of its arguments alone, found that it uses {captured} too.")
    return call(*arguments)


def mark_loop(loop: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns `loop`, a function of what the loop carries, as one that runtimes know for a client's training loop."""
    return _mark(loop, _LOOP)


@contextlib.contextmanager
def for_xla() -> Iterator[None]:
    """Builds a graph that XLA compiles, which knows TensorFlow's own operations alone: nothing is marked."""
    token = _FOR_XLA.set(True)
    try:
        yield
    finally:
        _FOR_XLA.reset(token)


def is_for_xla() -> bool:
    """Whether the graph that is built is one that XLA compiles."""
    return _FOR_XLA.get()


def is_elementwise(function_name: str) -> bool:
    """Whether a function of a graph's library is what `map_tensors` has made."""
    return _ELEMENTWISE in function_name


def is_loop(function_name: str) -> bool:
    """Whether a function of a graph's library is what `mark_loop` has made."""
    return _LOOP in function_name


def is_scalar(argument_name: str) -> bool:
    """Whether an argument of an elementwise function is one that is the same for all elements."""
    return argument_name.startswith(_SCALARS)


def _mark(function: Callable[..., Any], name: str) -> Any:
    """The function under another name: TensorFlow adds something before it and behind."""
    function.__name__ = name
    return tf.function(function, autograph=False)
