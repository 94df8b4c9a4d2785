"""Functions as operations of TensorFlow: compiled for this processor by LLVM, registered by TensorFlow's C interface.

An operation takes what a call of the function takes, by the same names (`args`, `output`): a node
that calls the function becomes one of it by another name in `op`. Its outputs lie where an input
lay that nobody else needs, or in new memory. TensorFlow refuses a node of other element types, and the machine code one
with more or fewer inputs or outputs: a graph need not come from the pass that put the operation in.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import pathlib
import threading
from typing import Any

import tensorflow as tf

from tff_fen.runtime.machine_code.element_loops import DECLARATIONS, Code, ElementFunction

# TensorFlow's C interface as far as machine code calls it: the result, then the arguments.
_CALLED = {
    "TF_NewStatus": "ptr ()",
    "TF_DeleteStatus": "void (ptr)",
    "TF_SetStatus": "void (ptr, i32, ptr)",
    "TF_NumInputs": "i32 (ptr)",
    "TF_NumOutputs": "i32 (ptr)",
    "TF_GetInput": "void (ptr, i32, ptr, ptr)",
    "TF_DeleteTensor": "void (ptr)",
    "TF_NumDims": "i32 (ptr)",
    "TF_Dim": "i64 (ptr, i32)",
    "TF_TensorElementCount": "i64 (ptr)",
    "TF_TensorData": "ptr (ptr)",
    "TF_ForwardInputOrAllocateOutput": "ptr (ptr, ptr, i32, i32, ptr, i32, ptr, ptr)",
    "TF_AllocateOutput": "ptr (ptr, i32, i32, ptr, i32, i64, ptr)",
    "TF_OpKernelContext_Failure": "void (ptr, ptr)",
    "TF_NewShapeHandle": "ptr ()",
    "TF_DeleteShapeHandle": "void (ptr)",
    "TF_ShapeInferenceContextScalar": "ptr (ptr)",
    "TF_ShapeInferenceContextGetInput": "void (ptr, i32, ptr, ptr)",
    "TF_ShapeInferenceContextSetOutput": "void (ptr, i32, ptr, ptr)",
}
# Whether two tensors have different shapes.
_DIFFER = """define internal i1 @differ(ptr %one, ptr %other) {
  %rank = call i32 @TF_NumDims(ptr %one)
  %other_rank = call i32 @TF_NumDims(ptr %other)
  %ranks_differ = icmp ne i32 %rank, %other_rank
  br i1 %ranks_differ, label %yes, label %check
check:
  %i = phi i32 [ 0, %0 ], [ %next, %compare ]
  %remain = icmp slt i32 %i, %rank
  br i1 %remain, label %compare, label %no
compare:
  %size = call i64 @TF_Dim(ptr %one, i32 %i)
  %other_size = call i64 @TF_Dim(ptr %other, i32 %i)
  %sizes_differ = icmp ne i64 %size, %other_size
  %next = add i32 %i, 1
  br i1 %sizes_differ, label %yes, label %check
yes:
  ret i1 true
no:
  ret i1 false
}"""
_MOST_DIMENSIONS = 254  # of a tensor of TensorFlow
_INVALID_ARGUMENT = 3  # TF_INVALID_ARGUMENT
_FLOAT = 1  # TF_FLOAT

_lock = threading.Lock()
_numbers = itertools.count()
_names: dict[str, str] = {}  # by their texts
# Machine code lives as long as the process: TensorFlow forgets no operation.
_libraries: list[Any] = []


class CompilationError(Exception):
    """There is no machine code to be had here, such as on a processor or system that llvmlite does not know."""


def register(function: ElementFunction) -> str:
    """Returns the name of an operation that computes the function; equal functions share one.

    Raises:
      CompilationError: if no operation can be made of any function here.
    """
    text = _text(function)
    with _lock:
        if text not in _names:
            name = f"TffFenElementwise{next(_numbers)}"
            try:
                library = _compile(text, name)
                _register(name, library["compute"], library["infer_shapes"])
            except (ImportError, OSError, AttributeError, RuntimeError, ValueError) as error:
                raise CompilationError(f"{type(error).__name__}: {error}") from error
            _libraries.append(library)
            _names[text] = name
        return _names[text]


def _text(function: ElementFunction) -> str:
    """The function, with all that TensorFlow needs of an operation, in LLVM's language."""
    candidates = [
        f"@group{i} = private constant [{len(g.arguments)} x i32] [{', '.join(f'i32 {a}' for a in g.arguments)}]"
        for i, g in enumerate(function.groups)
    ]
    messages = {
        "misshapen": "Tensors that an elementwise function treats alike must have one shape, and scalars none.",
        "miscounted": f"An elementwise function was compiled for {function.num_arguments} inputs and "
        f"{function.num_results} outputs; this node has others.",
    }
    compute, loops = _compute(function)
    return "\n".join(
        [
            *[f"declare {kind.replace('(', f'@{name}(', 1)}" for name, kind in _CALLED.items()],
            *DECLARATIONS,
            *candidates,
            *[_constant(name, text) for name, text in messages.items()],
            _DIFFER,
            *loops,
            "define void @compute(ptr %kernel, ptr %context) {",
            *compute,
            "}",
            "define void @infer_shapes(ptr %context, ptr %status) {",
            *_infer_shapes(function),
            "}",
        ]
    )


def _constant(name: str, text: str) -> str:
    """A string of C, in LLVM's language."""
    content = text.encode() + b"\0"
    literal = "".join(f"\\{byte:02X}" for byte in content)
    return f'@{name} = private constant [{len(content)} x i8] c"{literal}"'


def _compute(function: ElementFunction) -> tuple[list[str], list[str]]:
    """What TensorFlow calls to have the operation computed, and the definitions of what that calls."""
    code = Code()
    code.line("%status = call ptr @TF_NewStatus()")
    code.line(f"%dims = alloca [{_MOST_DIMENSIONS} x i64]")
    code.line("%forwarded = alloca i32")
    # Where the tensors are noted that are to be given back at the end, whatever happens.
    noted = [code.value("alloca ptr") for _ in range(function.num_arguments + function.num_results)]
    for slot in noted:
        code.line(f"store ptr null, ptr {slot}")
    inputs, outputs = noted[: function.num_arguments], noted[function.num_arguments :]

    def fetch(i: int) -> str:
        code.line(f"call void @TF_GetInput(ptr %context, i32 {i}, ptr {inputs[i]}, ptr %status)")
        return code.value(f"load ptr, ptr {inputs[i]}")

    for function_name, number in (("TF_NumInputs", function.num_arguments), ("TF_NumOutputs", function.num_results)):
        found = code.value(f"call i32 @{function_name}(ptr %context)")
        code.leave_if(f"icmp ne i32 {found}, {number}", "miscounted")
    sizes = []
    for number, group in enumerate(function.groups):
        model = fetch(group.arguments[0])
        sizes.append(code.value(f"call i64 @TF_TensorElementCount(ptr {model})"))
        rank = code.value(f"call i32 @TF_NumDims(ptr {model})")

        def copy_dimension(index: str, model: str = model) -> tuple[str, ...]:
            i = code.value(f"trunc i64 {index} to i32")
            dimension = code.value(f"call i64 @TF_Dim(ptr {model}, i32 {i})")
            code.line(f"store i64 {dimension}, ptr {code.value(f'getelementptr i64, ptr %dims, i64 {index}')}")
            return ()

        code.loop("0", code.value(f"zext i32 {rank} to i64"), 1, copy_dimension)
        # Given back first: an input that is held here too is not free to become an output.
        code.line(f"call void @TF_DeleteTensor(ptr {model})")
        code.line(f"store ptr null, ptr {inputs[group.arguments[0]]}")
        for i in group.results:
            output = code.value(
                f"call ptr @TF_ForwardInputOrAllocateOutput(ptr %context, ptr @group{number}, "
                f"i32 {len(group.arguments)}, i32 {i}, ptr %dims, i32 {rank}, ptr %forwarded, ptr %status)"
            )
            code.line(f"store ptr {output}, ptr {outputs[i]}")
            code.leave_if(f"icmp eq ptr {output}, null", "failed")
        for i in group.half_squares:
            output = code.value(
                f"call ptr @TF_AllocateOutput(ptr %context, i32 {i}, i32 {_FLOAT}, ptr %dims, "
                "i32 0, i64 4, ptr %status)"
            )
            code.line(f"store ptr {output}, ptr {outputs[i]}")
            code.leave_if(f"icmp eq ptr {output}, null", "failed")
    tensors = [fetch(i) for i in range(function.num_arguments)]
    tensors += [code.value(f"load ptr, ptr {slot}") for slot in outputs]
    for group in function.groups:
        model = tensors[function.num_arguments + group.results[0]]
        for i in group.arguments:
            code.leave_if(f"call i1 @differ(ptr {tensors[i]}, ptr {model})", "misshapen")
    for i in function.scalars:
        rank = code.value(f"call i32 @TF_NumDims(ptr {tensors[i]})")
        code.leave_if(f"icmp ne i32 {rank}, 0", "misshapen")
    elements = [code.value(f"call ptr @TF_TensorData(ptr {tensor})") for tensor in tensors]
    loops = function.write_loops(code, elements[: function.num_arguments], elements[function.num_arguments :], sizes)
    code.line("br label %done")
    for reason in ("misshapen", "miscounted"):
        code.begin(reason)
        code.line(f"call void @TF_SetStatus(ptr %status, i32 {_INVALID_ARGUMENT}, ptr @{reason})")
        code.line("br label %failed")
    code.begin("failed")
    code.line("call void @TF_OpKernelContext_Failure(ptr %context, ptr %status)")
    code.line("br label %done")
    code.begin("done")
    for slot in noted:
        code.line(f"call void @TF_DeleteTensor(ptr {code.value(f'load ptr, ptr {slot}')})")
    code.line("call void @TF_DeleteStatus(ptr %status)")
    code.line("ret void")
    return code.lines, loops


def _infer_shapes(function: ElementFunction) -> list[str]:
    """What TensorFlow calls to know the shapes of the outputs: those of the inputs they are made of, or of scalars."""
    code = Code()
    for i in (i for group in function.groups for i in group.half_squares):
        scalar = code.value("call ptr @TF_ShapeInferenceContextScalar(ptr %context)")
        code.line(f"call void @TF_ShapeInferenceContextSetOutput(ptr %context, i32 {i}, ptr {scalar}, ptr %status)")
        code.line(f"call void @TF_DeleteShapeHandle(ptr {scalar})")
    for group in function.groups:
        shape = code.value("call ptr @TF_NewShapeHandle()")
        for call, numbers in (("GetInput", group.arguments[:1]), ("SetOutput", group.results)):
            for i in numbers:
                code.line(f"call void @TF_ShapeInferenceContext{call}(ptr %context, i32 {i}, ptr {shape}, ptr %status)")
        code.line(f"call void @TF_DeleteShapeHandle(ptr {shape})")
    code.line("ret void")
    return code.lines


@functools.cache
def _tensorflow() -> ctypes.CDLL:
    (path,) = pathlib.Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework.so.*")
    return ctypes.CDLL(str(path))


@functools.cache
def _llvm() -> Any:
    # Where it is missing, the rest of the package works without.
    return importlib.import_module("llvmlite.binding")


@functools.cache
def _compiler() -> Any:
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    return llvm.create_lljit_compiler(machine)


def _compile(text: str, name: str) -> Any:
    """Machine code of a text, by the names `compute` and `infer_shapes`."""
    builder = _llvm().JITLibraryBuilder().add_ir(text)
    for called in _CALLED:
        builder.import_symbol(called, ctypes.cast(getattr(_tensorflow(), called), ctypes.c_void_p).value)
    for defined in ("compute", "infer_shapes"):
        builder.export_symbol(defined)
    return builder.link(_compiler(), name)


def _register(name: str, compute: int, infer_shapes: int) -> None:
    """Makes machine code an operation of TensorFlow's, on CPUs."""
    operation = _call("TF_NewOpDefinitionBuilder", name, result=ctypes.c_void_p)
    for part, spec in (
        ("Attr", "Tin: list({float})"),
        ("Attr", "Tout: list({float})"),
        ("Input", "args: Tin"),
        ("Output", "output: Tout"),
    ):
        _call(f"TF_OpDefinitionBuilderAdd{part}", operation, spec)
    _call("TF_OpDefinitionBuilderSetShapeInferenceFunction", operation, infer_shapes)
    _call_checked("TF_RegisterOpDefinition", operation)
    kernel = _call("TF_NewKernelBuilder", name, "CPU", None, compute, None, result=ctypes.c_void_p)
    _call_checked("TF_RegisterKernelBuilder", name, kernel)


def _call_checked(function: str, *arguments: str | int | None) -> None:
    """Calls a function of TensorFlow's C interface whose last argument is a status."""
    status = _call("TF_NewStatus", result=ctypes.c_void_p)
    _call(function, *arguments, status)
    code = _call("TF_GetCode", status, result=ctypes.c_int)
    message = _call("TF_Message", status, result=ctypes.c_char_p)
    _call("TF_DeleteStatus", status)
    if code:
        raise RuntimeError(f"{function} failed: {message.decode()}")


def _call(function: str, *arguments: str | int | None, result: Any = None) -> Any:
    """Calls a function of TensorFlow's C interface with strings, and pointers as numbers."""
    called = getattr(_tensorflow(), function)
    called.restype = result
    called.argtypes = [ctypes.c_char_p if isinstance(a, str) else ctypes.c_void_p for a in arguments]
    return called(*[a.encode() if isinstance(a, str) else a for a in arguments])
