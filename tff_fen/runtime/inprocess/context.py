"""TFF computations in this process: with the installed TensorFlow, its GPUs, and clients side by side in threads."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from google.protobuf import message

from tff_fen.checks import check_integer
from tff_fen.runtime import compilation, devices
from tff_fen.runtime.errors import UnsupportedConstructError
from tff_fen.runtime.inprocess import values
from tff_fen.runtime.inprocess.evaluator import ComputationEvaluator, Executable, LocalFunction
from tff_fen.runtime.inprocess.executors import ClientExecutor, ThreadedClientExecutor


class InProcessContext(tff.framework.SyncContext):
    """Evaluates TFF computations in this process; results are those of TFF's native runtime.

    A computation is compiled, and its TensorFlow graphs are imported, at its first call;
    they are kept as long as the computation lives. Data sets are handed over as they are.
    """

    def __init__(self, executor: ClientExecutor, clients_on_gpus: bool | None = None) -> None:
        """Initializes the context.

        Args:
          executor: who does the clients' work.
          clients_on_gpus: whether on GPUs, where graphs stay as TensorFlow has them; by default whether there are any.
        """
        self._executor = executor
        self._clients_on_gpus = devices.has_gpu() if clients_on_gpus is None else clients_on_gpus
        # By identity: to hash a computation is to serialise it. The weak reference removes the entry with the
        # computation, before its id can be that of another.
        self._executables: dict[int, tuple[weakref.ref, Executable]] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns `comp(arg)`; called by TFF."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"The context was made in process {self._process}, which process {os.getpid()} is a fork of; "
                "TensorFlow's threads are not copied with it, and a call would wait for them for ever. Start processes "
                "by multiprocessing.get_context('spawn'), and make a context in each."
            )
        if tf.executing_eagerly():
            return self._invoke(comp, arg)
        # The caller builds a graph, or traces a function: other threads have nothing to do with it.
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            return other.submit(self._invoke, comp, arg).result()

    def _invoke(self, comp: Any, arg: Any) -> Any:
        signature = comp.type_signature
        if signature.parameter is not None and arg is None:
            raise TypeError(f"Expected an argument of type {signature.parameter}, found None.")
        num_clients = 0
        argument = None
        # Arguments stay on the CPU until they are used: a client's go to the client's own device then.
        with tf.device("/CPU:0"):
            if signature.parameter is not None:
                num_clients = values.count_clients(arg, signature.parameter) or 0
                argument = values.ingest(arg, signature.parameter, lambda f: self._function(f, num_clients))
        result = ComputationEvaluator(self._executable(comp), self._executor, num_clients).run(argument)
        # The signature as written: compiling drops the Python containers.
        return values.egest(result, signature.result, num_clients)

    def _function(self, comp: Any, num_clients: int) -> LocalFunction:
        """An argument that is a computation, as a value."""
        executable = self._executable(comp)
        return LocalFunction(executable.block, {}, ComputationEvaluator(executable, self._executor, num_clients))

    def _executable(self, comp: Any) -> Executable:
        with self._lock:
            if id(comp) not in self._executables:
                executable = Executable(self._compile(comp).to_building_block())
                key = id(comp)
                self._executables[key] = (weakref.ref(comp, lambda _: self._executables.pop(key, None)), executable)
            return self._executables[id(comp)][1]

    def _compile(self, comp: Any) -> Any:
        """Compiles for the native runtime; secure sums become plain ones, as in TFF's own test runtime."""
        try:
            plain = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
            return compilation.compile_computation(plain, keep_marked=not self._clients_on_gpus)
        except message.DecodeError as error:
            raise UnsupportedConstructError(
                "The computation nests more deeply than protobuf reads (100 levels), as tff.learning's "
                "ddp_secure_aggregator does. Set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python in the environment "
                "before Python starts: protobuf is slower then, but knows no such limit."
            ) from error


def create_inprocess_context(
    *,
    max_concurrent_clients: int | None = None,
    client_devices: Sequence[str] | None = None,
    threads_per_client: int | None = 1,
    gpu_memory_growth: bool = True,
    clients_per_gpu: int = 1,
    gpu_memory_mb: int | None = None,
) -> InProcessContext:
    """Returns a context that evaluates TFF computations in this process, with the installed TensorFlow.

    Call it before anything makes TensorFlow start (a tensor, a Keras model): only then
    can the number of threads an operation uses, and the growth of GPU memory, still be
    set. Called later, it warns and goes on with the settings TensorFlow has started
    with: results are the same, rounds of many small clients slower.

    Args:
      max_concurrent_clients: clients computed at once; by default one per device if `client_devices`
        are GPUs, else the number of cores.
      client_devices: where clients compute, client i on device i modulo their number, as
        TensorFlow names them ("GPU:1"); by default all GPUs, or the CPU if there are none.
      threads_per_client: threads for one operation. With one, clients side by side do
        not wait for each other inside each operation. `None` takes the cores that are left
        over if `max_concurrent_clients` are fewer than cores; another number may round otherwise.
      gpu_memory_growth: whether TensorFlow takes GPU memory as it needs it, rather than all.
      clients_per_gpu: clients computed at once on each GPU, each on a logical GPU with a stream of
        its own: one small client does not keep a GPU busy.
      gpu_memory_mb: the memory of a GPU, in MB, that its logical GPUs share equally; needed with
        `clients_per_gpu` > 1, and without effect else.
    """
    cores = len(os.sched_getaffinity(0))
    if max_concurrent_clients is not None:
        check_integer("max_concurrent_clients", max_concurrent_clients, 1)
    if threads_per_client is None:
        threads_per_client = max(1, cores // (max_concurrent_clients or cores))
    check_integer("threads_per_client", threads_per_client, 1)
    check_integer("clients_per_gpu", clients_per_gpu, 1)
    growth: bool | None = gpu_memory_growth
    if clients_per_gpu > 1:
        if gpu_memory_mb is None:
            raise ValueError(
                f"clients_per_gpu={clients_per_gpu} needs gpu_memory_mb, the memory of a GPU in MB that its clients "
                "share: TensorFlow splits a GPU into parts of given sizes only. nvidia-smi shows what is free."
            )
        check_integer("gpu_memory_mb", gpu_memory_mb, clients_per_gpu)
        devices.split("GPU", clients_per_gpu, gpu_memory_mb)
        growth = None  # TensorFlow refuses it for parts of a GPU
    configure_tensorflow(threads_per_client, growth)
    names = _client_devices(client_devices)
    if max_concurrent_clients is None:
        on_cpu = any(tf.DeviceSpec.from_string(device).device_type == "CPU" for device in names)
        max_concurrent_clients = cores if on_cpu else len(names)
    return InProcessContext(ThreadedClientExecutor(max_concurrent_clients, names))


def set_inprocess_context(
    *,
    max_concurrent_clients: int | None = None,
    client_devices: Sequence[str] | None = None,
    threads_per_client: int | None = 1,
    gpu_memory_growth: bool = True,
    clients_per_gpu: int = 1,
    gpu_memory_mb: int | None = None,
) -> None:
    """Makes the context of `create_inprocess_context` TFF's default runtime."""
    context = create_inprocess_context(
        max_concurrent_clients=max_concurrent_clients,
        client_devices=client_devices,
        threads_per_client=threads_per_client,
        gpu_memory_growth=gpu_memory_growth,
        clients_per_gpu=clients_per_gpu,
        gpu_memory_mb=gpu_memory_mb,
    )
    tff.framework.set_default_context(context)


def configure_tensorflow(threads_per_client: int, gpu_memory_growth: bool | None, concurrent_ops: int = 0) -> None:
    """Sets what can be set only before TensorFlow starts, or warns that it is too late.

    Args:
      threads_per_client: threads of an operation.
      gpu_memory_growth: whether TensorFlow takes GPU memory as it needs it; `None` leaves it as it is.
      concurrent_ops: operations computed at once; 0 leaves it as it is, by default the number of cores.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads_per_client)
    except RuntimeError:
        found = tf.config.threading.get_intra_op_parallelism_threads()
        warnings.warn(
            f"threads_per_client={threads_per_client} has no effect: TensorFlow has already started, with "
            f"{found or 'all cores'} as the threads of an operation. Clients may wait for each other. Call "
            "tff_fen.runtime.set_inprocess_context() or set_ray_context() before the first tensor or model is made.",
            RuntimeWarning,
            stacklevel=3,
        )
    if concurrent_ops:
        # Too late for this is too late for the above, which has warned.
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_inter_op_parallelism_threads(concurrent_ops)
    if gpu_memory_growth is None:
        return
    try:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, gpu_memory_growth)
    except RuntimeError:
        warnings.warn(
            f"gpu_memory_growth={gpu_memory_growth} has no effect: TensorFlow has already started. Call "
            "tff_fen.runtime.set_inprocess_context() or set_ray_context() before the first tensor or model is made.",
            RuntimeWarning,
            stacklevel=3,
        )


def _client_devices(requested: Sequence[str] | None) -> list[str]:
    """The full names of the devices asked for, or of all GPUs, or of the CPU."""
    found = {d.name: d for d in tf.config.list_logical_devices() if d.device_type in ("CPU", "GPU")}
    if requested is None:
        gpus = [name for name, device in found.items() if device.device_type == "GPU"]
        return gpus or ["/device:CPU:0"]
    names = {name.removeprefix("/device:"): name for name in found}
    short = [str(device).removeprefix("/").removeprefix("device:").upper() for device in requested]
    if not short or not set(short) <= set(names):
        raise ValueError(
            f"client_devices must be a list of one or more of {sorted(names)}, found {list(requested)}. "
            "tf.config.list_logical_devices() lists what TensorFlow sees."
        )
    return [names[device] for device in short]
