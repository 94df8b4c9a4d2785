"""Loops over elements in LLVM's language, for functions of TensorFlow that treat every element alike.

Each operation of a function becomes one instruction on a vector of elements, in the order in
which the function has them and rounded as TensorFlow rounds: nothing is reassociated, nor
contracted to a fused multiply-add. So the bits are those of the operations one by one (but for the
sign of a zero that is an extreme of zeros of both signs), but memory is read and written once.

A result may also be half the sum of squares of such a vector (`tf.nn.l2_loss`), taken in the same loop. It is added up
in float64, and rounded once: more exactly than TensorFlow does, and so not to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_fen import graph_marks
from tff_fen.runtime.graph_parts import tensor_node

# Elements of a vector, as AVX-512 has them; where a processor's vectors are shorter, LLVM takes several.
_WIDTH = 16
_VECTOR = f"<{_WIDTH} x float>"
_DOUBLES = f"<{_WIDTH} x double>"
_ADD_UP = f"@llvm.vector.reduce.fadd.v{_WIDTH}f64"
DECLARATIONS = [f"declare double {_ADD_UP}(double, {_DOUBLES})"]
"""Of what the loops call."""

_HALF_SQUARES = "L2Loss"

_BINARY = {"Add": "fadd", "AddV2": "fadd", "Sub": "fsub", "Mul": "fmul"}
_EXTREMES = {"Minimum": "olt", "Maximum": "ogt"}
# Of a sum; with more, TensorFlow adds them in blocks.
_MOST_TERMS = 9
_OPERATIONS = {"Const", "Identity", "AddN", "Neg", "Sign", _HALF_SQUARES, *_BINARY, *_EXTREMES}


class UnsupportedFunctionError(Exception):
    """A function that no loop is made of; the message says why."""


class Group(NamedTuple):
    """Tensors of one shape: a function's arguments, and the results that are made of them, by their numbers.

    Attributes:
      arguments: of that shape.
      results: of that shape, made of the arguments; one at least.
      half_squares: results that are half the sum of squares of a tensor made of the arguments.
    """

    arguments: tuple[int, ...]
    results: tuple[int, ...]
    half_squares: tuple[int, ...] = ()


class ElementFunction:
    """A function of TensorFlow, to be written as loops over elements.

    Attributes:
      num_arguments: how many arguments it takes.
      num_results: how many results it has.
      scalars: the arguments, by their numbers, that are the same for all elements.
      groups: arguments and results by what is computed together; scalars are in none of them.
    """

    def __init__(self, function: Any) -> None:
        """Reads a function.

        Args:
          function: the `FunctionDef` of a function that `graph_marks.map_tensors` has made.

        Raises:
          UnsupportedFunctionError: if there is more in it than the arithmetic on float32 that is known here.
        """
        signature = function.signature
        self._arguments = [argument.name for argument in signature.input_arg]
        self._nodes = {node.name: node for node in function.node_def}
        self._tensors: dict[str, frozenset[str]] = {}
        self._results = [self._named(tensor_node(function.ret[result.name])) for result in signature.output_arg]
        self._half_squares = {i for i, name in enumerate(self._results) if self._is_half_squares(name)}
        for i in self._half_squares:
            (self._results[i],) = _operands(self._nodes[self._results[i]])
        for node in function.node_def:
            if node.op not in _OPERATIONS:
                raise UnsupportedFunctionError(f"{node.name!r} is a {node.op}.")
            if node.op == "AddN" and len(_operands(node)) > _MOST_TERMS:
                raise UnsupportedFunctionError(f"{node.name!r} has more terms than {_MOST_TERMS}.")
            if node.op != "Identity" and any(map(self._is_half_squares, _operands(node))):
                raise UnsupportedFunctionError(f"{node.name!r} computes with a sum of squares.")
        dtypes = {argument.type for argument in (*signature.input_arg, *signature.output_arg)}
        if dtypes != {tf.float32.as_datatype_enum}:
            raise UnsupportedFunctionError(f"It takes or returns {[tf.dtypes.as_dtype(d).name for d in dtypes]}.")
        self.num_arguments, self.num_results = len(self._arguments), len(self._results)
        self.scalars = tuple(i for i, name in enumerate(self._arguments) if not self._tensors_in(name))
        self.groups = self._find_groups()

    def _named(self, name: str) -> str:
        """What a value is that has been given other names."""
        while name in self._nodes and self._nodes[name].op == "Identity":
            (name,) = _operands(self._nodes[name])
        return name

    def _is_half_squares(self, name: str) -> bool:
        node = self._nodes.get(self._named(name))
        return node is not None and node.op == _HALF_SQUARES

    def _find_groups(self) -> list[Group]:
        """Results that have an argument in common, directly or through other results, are one group."""
        groups: list[tuple[set[int], set[int]]] = []
        for i, result in enumerate(self._results):
            arguments, results = {self._arguments.index(name) for name in self._tensors_in(result)}, {i}
            if not arguments:
                raise UnsupportedFunctionError(f"Result {i} is made of scalars alone.")
            for group in [g for g in groups if arguments & g[0]]:
                groups.remove(group)
                arguments |= group[0]
                results |= group[1]
            groups.append((arguments, results))
        if any(results <= self._half_squares for _, results in groups):
            raise UnsupportedFunctionError("It has a sum of squares of tensors that nothing else is made of.")
        return [
            Group(*(tuple(sorted(x)) for x in (arguments, results - self._half_squares, results & self._half_squares)))
            for arguments, results in groups
        ]

    def _tensors_in(self, name: str) -> frozenset[str]:
        """The arguments, but for scalars, that a value is made of."""
        if name not in self._tensors:
            if name in self._nodes:
                of_operands = (self._tensors_in(operand) for operand in _operands(self._nodes[name]))
                self._tensors[name] = frozenset().union(*of_operands)
            else:
                self._tensors[name] = frozenset() if graph_marks.is_scalar(name) else frozenset({name})
        return self._tensors[name]

    def write_loops(self, code: Code, inputs: list[str], outputs: list[str], sizes: list[str]) -> list[str]:
        """Writes a call for each group and returns the definitions of what is called: groups alike share a loop.

        Args:
          code: what to write to.
          inputs: pointers to the elements of each argument.
          outputs: likewise of each result; where an argument of its group is, a result may be too.
          sizes: how many elements the tensors of each group have.
        """
        # What is the same for all elements comes before the loops.
        numbers: dict[str, str] = {}
        for i in self.scalars:
            numbers[self._arguments[i]] = code.value(f"load float, ptr {inputs[i]}")
        for name in self._nodes:
            if not self._tensors_in(name):
                self._write(name, "float", numbers, code)
        loops: dict[str, str] = {}
        for group, size in zip(self.groups, sizes, strict=True):
            used = self._numbers_in(group)
            name = loops.setdefault(self._loop(group, used), f"@loop{len(loops)}")
            passed = [f"ptr {inputs[i]}" for i in group.arguments]
            passed += [f"ptr {outputs[i]}" for i in (*group.results, *group.half_squares)]
            passed += [f"float {numbers[number]}" for number in used] + [f"i64 {size}"]
            code.line(f"call void {name}({', '.join(passed)})")
        return [f"define internal void {name}{text}" for text, name in loops.items()]

    def _numbers_in(self, group: Group) -> list[str]:
        """The scalars, arguments or computed of some, that a group's results are computed with."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        to_visit = [self._results[i] for i in (*group.results, *group.half_squares)]
        while to_visit:
            name = to_visit.pop()
            if not self._tensors_in(name):
                found[name] = None
            elif name in self._nodes and name not in seen:
                seen.add(name)
                to_visit.extend(_operands(self._nodes[name]))
        return list(found)

    def _loop(self, group: Group, numbers: list[str]) -> str:
        """A function's parameters and body: the group's loop, with nothing in it that other groups have otherwise."""
        inputs, outputs, sums = (
            [f"%{kind}{i}" for i in range(len(x))] for kind, x in zip(("in", "out", "sum"), group, strict=True)
        )
        parameters = [f"ptr {name}" for name in (*inputs, *outputs, *sums)]
        parameters += [f"float %number{i}" for i in range(len(numbers))]
        code = Code()
        known = {"float": {number: f"%number{i}" for i, number in enumerate(numbers)}}
        known[_VECTOR] = {number: code.broadcast(value) for number, value in known["float"].items()}

        def loop(kind: str, start: str, end: str, step: int, totals: list[tuple[str, str]]) -> list[str]:
            def body(index: str, *totals: str) -> list[str]:
                values = dict(known[kind])
                for i, pointer in zip(group.arguments, inputs, strict=True):
                    values[self._arguments[i]] = code.load(kind, pointer, index)
                results = [self._write(self._results[i], kind, values, code) for i in group.results]
                squared = [self._write(self._results[i], kind, values, code) for i in group.half_squares]
                # After all of the reading: an output may be where an input is.
                for result, pointer in zip(results, outputs, strict=True):
                    code.store(kind, result, pointer, index)
                return [code.add_square(total, kind, x) for total, x in zip(totals, squared, strict=True)]

            return code.loop(start, end, step, body, totals)

        in_vectors = code.value(f"and i64 %size, {-_WIDTH}")
        totals = loop(_VECTOR, "0", in_vectors, _WIDTH, [(_DOUBLES, "zeroinitializer") for _ in sums])
        totals = [code.value(f"call double {_ADD_UP}(double 0.0, {_DOUBLES} {total})") for total in totals]
        totals = loop("float", in_vectors, "%size", 1, [("double", total) for total in totals])
        for total, pointer in zip(totals, sums, strict=True):
            half = code.value(f"fmul double {total}, 0.5")
            code.store("float", code.value(f"fptrunc double {half} to float"), pointer, "0")
        code.line("ret void")
        return "\n".join([f"({', '.join(parameters)}, i64 %size) {{", *code.lines, "}"])

    def _write(self, name: str, kind: str, values: dict[str, str], code: Code) -> str:
        """Writes the operation of that name, and those it needs, but for what is among `values` already."""
        if name not in values:
            node = self._nodes[name]
            operands = [self._write(operand, kind, values, code) for operand in _operands(node)]
            values[name] = _write_operation(node, kind, operands, code)
        return values[name]


def _operands(node: Any) -> list[str]:
    """The names of what an operation computes with; what it waits for besides means nothing to arithmetic."""
    return [tensor_node(source) for source in node.input if not source.startswith("^")]


def _write_operation(node: Any, kind: str, operands: list[str], code: Code) -> str:
    """Writes one operation and returns the name of its result."""
    if node.op == "Const":
        array = tf.make_ndarray(node.attr["value"].tensor)
        if array.shape or array.dtype != np.float32:
            raise UnsupportedFunctionError(f"{node.name!r} is a constant {array.dtype}{list(array.shape)}.")
        return code.literal(float(array), "float")
    first, *others = operands
    if node.op in _BINARY:
        return code.value(f"{_BINARY[node.op]} {kind} {first}, {others[0]}")
    if node.op in _EXTREMES:
        extreme = code.select(f"{_EXTREMES[node.op]} {kind} {first}, {others[0]}", kind, first, others[0])
        return code.keep_nan(first, kind, extreme)
    if node.op == "AddN":
        for other in others:
            first = code.value(f"fadd {kind} {first}, {other}")
    elif node.op == "Neg":
        return code.value(f"fneg {kind} {first}")
    elif node.op == "Sign":
        zero, one = code.literal(0.0, kind), code.literal(1.0, kind)
        above, below = (code.select(f"{than} {kind} {first}, {zero}", kind, one, zero) for than in ("ogt", "olt"))
        return code.keep_nan(first, kind, code.value(f"fsub {kind} {above}, {below}"))
    return first


class Code:
    """The lines of a function in LLVM's language; `kind` is a type there, `float` or a vector."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._label = ""
        self.begin("entry")

    def line(self, text: str) -> None:
        """Adds an instruction that has no result, or names it."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Adds an instruction and returns the name of its result."""
        self._count += 1
        self.line(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def begin(self, label: str) -> None:
        """Begins the instructions of a label."""
        self.lines.append(f"{label}:")
        self._label = label

    def leave_if(self, condition: str, label: str) -> None:
        """Goes to a label if an instruction gives true."""
        holds = self.value(condition)
        going_on = f"after_{holds[1:]}"
        self.line(f"br i1 {holds}, label %{label}, label %{going_on}")
        self.begin(going_on)

    def loop(
        self,
        start: str,
        end: str,
        step: int,
        body: Callable[..., Sequence[str]],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """Adds `for (i = start; i < end; i += step) carried = body(i, *carried)`; returns what is carried at the end.

        Args:
          start: of i, as the other numbers.
          end: of i.
          step: of i.
          body: adds what is repeated.
          carried: types of values, and the values at first.
        """
        self._count += 1
        check, inside, after = (f"{name}{self._count}" for name in ("check", "inside", "after"))
        index, following, before = f"%index{self._count}", f"%following{self._count}", self._label
        values = [f"%carried{self._count}_{i}" for i in range(len(carried))]
        self.line(f"br label %{check}")
        self.begin(check)
        # What is known only when `body` has been written is put here then. `body` has no labels of its own, so that
        # `inside` is where it ends.
        at = len(self.lines)
        goes_on = self.value(f"icmp slt i64 {index}, {end}")
        self.line(f"br i1 {goes_on}, label %{inside}, label %{after}")
        self.begin(inside)
        next_values = body(index, *values)
        self.line(f"{following} = add i64 {index}, {step}")
        self.line(f"br label %{check}")
        phis = [("i64", index, start, following)]
        phis += [(kind, v, first, n) for (kind, first), v, n in zip(carried, values, next_values, strict=True)]
        self.lines[at:at] = [
            f"  {value} = phi {kind} [ {first}, %{before} ], [ {later}, %{inside} ]"
            for kind, value, first, later in phis
        ]
        self.begin(after)
        return values

    def add_square(self, total: str, kind: str, operand: str) -> str:
        """The total, in float64, with the square of a float or vector added."""
        doubles = "double" if kind == "float" else _DOUBLES
        exact = self.value(f"fpext {kind} {operand} to {doubles}")
        return self.value(f"fadd {doubles} {total}, {self.value(f'fmul {doubles} {exact}, {exact}')}")

    def load(self, kind: str, pointer: str, index: str) -> str:
        """Reads from the elements at `pointer`, from number `index` on."""
        address = self.value(f"getelementptr float, ptr {pointer}, i64 {index}")
        return self.value(f"load {kind}, ptr {address}, align 4")

    def store(self, kind: str, value: str, pointer: str, index: str) -> None:
        """Writes to the elements at `pointer`, from number `index` on."""
        address = self.value(f"getelementptr float, ptr {pointer}, i64 {index}")
        self.line(f"store {kind} {value}, ptr {address}, align 4")

    def select(self, comparison: str, kind: str, if_true: str, if_false: str) -> str:
        """Chooses element by element."""
        truth = "i1" if kind == "float" else f"<{_WIDTH} x i1>"
        return self.value(f"select {truth} {self.value(f'fcmp {comparison}')}, {kind} {if_true}, {kind} {if_false}")

    def keep_nan(self, operand: str, kind: str, result: str) -> str:
        """The result, but NaN where the operand is."""
        return self.select(f"uno {kind} {operand}, {operand}", kind, operand, result)

    def broadcast(self, number: str) -> str:
        """A vector of one number."""
        first = self.value(f"insertelement {_VECTOR} poison, float {number}, i64 0")
        return self.value(f"shufflevector {_VECTOR} {first}, {_VECTOR} poison, <{_WIDTH} x i32> zeroinitializer")

    def literal(self, number: float, kind: str) -> str:
        """A float32 as LLVM reads it: the bits of the same number as a double."""
        text = f"0x{int(np.float64(np.float32(number)).view(np.uint64)):016X}"
        return text if kind == "float" else f"<{', '.join([f'float {text}'] * _WIDTH)}>"
