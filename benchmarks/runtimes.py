"""The same rounds on TFF's native runtime, in process, and without TFF.

    python -m benchmarks.runtimes [--workloads=mnist ...] [--rounds=15]

mnist      10 clients of 600 x 784 examples, 5 epochs, batch 10, MLP 784-200-200-10; Algorithm 3 complete, with client
           states and measurements. Beside it TFF's own FedProx with a Keras model, on either runtime.
cifar      10 clients of 500 images of 32 x 32 x 3, 1 epoch, batch 50, the paper's CNN; Algorithm 3 likewise.
lstm       10 clients of 100 windows of 80 characters, 1 epoch, batch 20, the paper's LSTM; Algorithm 3 likewise.
overhead   a client's work is one addition; 10, 100 and 1000 clients, and the sum of what they return.

The floor is the local steps alone in a compiled TensorFlow function, on as many threads as in process: no TFF, no data
sets, no Keras, no metrics, no client states, no measurements, no aggregation. It is there twice: with TensorFlow's
operations, and with the loop that the in-process runtime has for a step's arithmetic (`passes/fusing.py`).
"Keras's loop" is without `tff_fen.fuse_lstm`.
"Usual executor" is in process without one thread a training loop (`tff_fen/runtime/passes/one_thread.py`).
Every native contender has a worker of its own, set up by `create_native_context` unless it says "default"; the rounds
are interleaved, so that a slow spell of the machine hits all. Figures are medians with the range of the middle half;
the first two rounds of each are not counted. The time of all cores together says more than the clock where others use
the machine too.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

import tff_fen
from benchmarks import local_training as fed_prox
from tasks import models
from tff_fen.client_work import batches
from tff_fen.client_work.trainer import Trainer
from tff_fen.runtime.inprocess import graphs
from tff_fen.runtime.passes import fusing, isolating, stages

_NAMES = ["mnist", "cifar", "lstm", "overhead"]
_WARM_UP = 2

ELASTIC_NET = tff_fen.ElasticNet(l1=1e-6, l2=1e-2, threshold=1e-3)

Examples = tuple[np.ndarray, np.ndarray]
Run = Callable[[], Any]


class Workload(NamedTuple):
    """Clients with a model to train.

    Attributes:
      keras_model: makes the model.
      clients: their examples.
      training: their local training.
      predict: the same model as a function of its weights, for the floor, if there is one: TFF allows its functional
        Keras models in its own computations only.
    """

    keras_model: Callable[[], tf.keras.Model]
    clients: list[Examples]
    training: tff_fen.LocalTraining
    predict: Callable[[Any, tf.Tensor], tf.Tensor] | None = None

    @property
    def input_spec(self) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        """Of a batch."""
        x, _ = self.clients[0]
        return tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([None], tf.int32)

    def model(self) -> tff.learning.models.FunctionalModel:
        """The model for this package's algorithms."""
        return tff.learning.models.functional_model_from_keras(
            tff_fen.fuse_lstm(self.keras_model()),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            self.input_spec,
            collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
        )

    def floor_model(self) -> tff.learning.models.FunctionalModel:
        """The same model without Keras and without metrics."""

        def predict(weights: Any, x: tf.Tensor, training: bool = True) -> tf.Tensor:
            del training
            assert self.predict is not None
            return self.predict(weights[0], x)

        def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
            del sample_weight
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, output))

        weights = tuple(w.numpy() for w in self.keras_model().trainable_variables)
        return tff.learning.models.FunctionalModel(
            initial_weights=(weights, ()),
            predict_on_batch_fn=tf.function(predict),
            loss_fn=tf.function(loss),
            input_spec=self.input_spec,
        )


def predict_mlp(weights: Any, x: tf.Tensor) -> tf.Tensor:
    """`tasks.models.build_mlp`."""
    *hidden, (kernel, bias) = zip(weights[::2], weights[1::2], strict=True)
    for w, b in hidden:
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def predict_cnn(weights: Any, x: tf.Tensor) -> tf.Tensor:
    """`tasks.models.build_cnn`."""
    for i in (0, 2):
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weights[i], 1, "VALID"), weights[i + 1]))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return predict_mlp(weights[4:], tf.reshape(x, [-1, weights[4].shape[0]]))


def random_clients(num_examples: int, shape: tuple[int, ...]) -> list[Examples]:
    """Ten clients with Gaussian inputs: the time of a step does not depend on their values."""
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(num_examples, *shape)).astype(np.float32), rng.integers(0, 10, num_examples).astype(np.int32))
        for _ in range(10)
    ]


def mnist() -> Workload:
    """The MNIST workload with the settings of `benchmarks.local_training`."""
    training = tff_fen.LocalTraining(fed_prox.LEARNING_RATE, epochs=fed_prox.EPOCHS, batch_size=fed_prox.BATCH_SIZE)
    return Workload(lambda: models.build_mlp(784, 200, 10), random_clients(600, (784,)), training, predict_mlp)


def cifar() -> Workload:
    """The CIFAR workload."""
    training = tff_fen.LocalTraining(0.01, batch_size=50)
    return Workload(lambda: models.build_cnn(10), random_clients(500, (32, 32, 3)), training, predict_cnn)


def lstm() -> Workload:
    """The LSTM workload: windows of random characters."""
    rng = np.random.default_rng(0)
    texts = rng.integers(0, 79, size=(10, 100, 81), dtype=np.int32)
    clients = [(text[:, :-1], text[:, -1]) for text in texts]
    return Workload(models.build_lstm, clients, tff_fen.LocalTraining(0.1, batch_size=20))


def algorithm_3(workload: Workload) -> Run:
    """A round of Algorithm 3 with all clients, on TFF's current runtime."""
    process = tff_fen.build_fed_dyn(workload.model(), ELASTIC_NET, workload.training, num_clients=len(workload.clients))
    state = process.initialize()
    inputs = [
        tff_fen.ClientInput(process.initialize_client(k), tf.data.Dataset.from_tensors(examples))
        for k, examples in enumerate(workload.clients)
    ]
    return lambda: process.next(state, inputs)


def floor(workload: Workload, threads: int, *, with_loops: bool = False) -> Run:
    """The local steps of Algorithm 3 alone, clients side by side in threads of this process.

    Args:
      workload: whose clients.
      threads: how many clients at once.
      with_loops: whether a step's arithmetic is the loop that the in-process runtime has for it.
    """
    model = workload.floor_model()
    trainer = Trainer(model, ELASTIC_NET, workload.training)
    settings = workload.training
    assert settings.batch_size is not None
    batch_size = settings.batch_size

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor, client_id: tf.Tensor, theta: Any, gradient: Any) -> Any:
        seed = batches.shuffle_seed(settings.seed, tf.constant(0), client_id)
        minibatches = batches.ShuffledMinibatches((x, y), settings.epochs, batch_size, seed)
        weights = tff.learning.models.ModelWeights(theta, ())
        result = trainer.train_on(weights, minibatches, tf.constant(settings.learning_rate), gradient)
        return tf.nest.flatten(result.delta)

    common = [*trainer.initial_weights().trainable, *trainer.zeros()]
    clients = [(*map(tf.constant, c), tf.constant(k, tf.int64)) for k, c in enumerate(workload.clients)]
    compiled = train.get_concrete_function(*clients[0], trainer.initial_weights().trainable, trainer.zeros())
    if with_loops:
        compiled = _with_loops(compiled)
    pool = concurrent.futures.ThreadPoolExecutor(threads)

    def work(client: tuple[tf.Tensor, ...]) -> list[np.ndarray]:
        return [delta.numpy() for delta in compiled(*client, *common)]

    return lambda: list(pool.map(work, clients))


def _with_loops(function: Any) -> Any:
    """The function with its elementwise arithmetic as the in-process runtime has it."""
    graph_def = function.graph.as_graph_def()
    isolating.isolate_calls(graph_def, "", "_with_loops")
    fusing.use_loops(graph_def)
    feeds, fetches = ([tensor.name for tensor in tensors] for tensors in (function.inputs, function.outputs))
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in function.inputs]
    return graphs.import_function(graph_def, feeds, specs, fetches)


def with_usual_executor(workload: Workload) -> Run:
    """A round of Algorithm 3 in process, its training loops left to TensorFlow's usual executor."""
    run = on(IN_PROCESS[0], lambda: algorithm_3(workload))
    with mock.patch.object(stages, "BEFORE_OPTIMISER", (fusing.keep_calls,)):
        run()  # the first call compiles
    return run


def stock_fed_prox() -> Run:
    """A round of TFF's own FedProx with a Keras model on the MNIST workload, on TFF's current runtime."""
    process = fed_prox.stock_fed_prox()
    state = process.initialize()
    pipelines = [
        tf.data.Dataset.from_tensor_slices(c)
        .shuffle(fed_prox.EXAMPLES)
        .repeat(fed_prox.EPOCHS)
        .batch(fed_prox.BATCH_SIZE)
        for c in fed_prox.examples()
    ]
    return lambda: process.next(state, pipelines)


def additions(num_clients: int) -> Run:
    """The sum over clients of what one addition gives, on TFF's current runtime."""

    @tff.tensorflow.computation(np.float32)
    def add_one(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def total(x: Any) -> Any:
        return tff.federated_sum(tff.federated_map(add_one, x))

    values = [float(k) for k in range(num_clients)]
    return lambda: total(values)


def on(context: tff.framework.SyncContext, build: Callable[[], Run]) -> Run:
    """A run built and called with the given runtime."""
    with tff.framework.get_context_stack().install(context):
        run = build()

    def run_there() -> Any:
        with tff.framework.get_context_stack().install(context):
            return run()

    return run_there


class Times(NamedTuple):
    """Seconds of each round: by the clock, and of all cores together, here and in TFF's workers."""

    wall: list[float]
    cpu: list[float]


def seconds(contenders: dict[str, Run], rounds: int) -> dict[str, Times]:
    """The times of that many rounds of each contender, taken in turns."""
    times = {name: Times([], []) for name in contenders}
    for _ in range(_WARM_UP + rounds):
        for name, run in contenders.items():
            cpu_start = _cpu_seconds()  # before the clock starts: it takes a millisecond or more
            start = time.perf_counter()
            run()
            times[name].wall.append(time.perf_counter() - start)
            times[name].cpu.append(_cpu_seconds() - cpu_start)
    return {name: Times(t.wall[_WARM_UP:], t.cpu[_WARM_UP:]) for name, t in times.items()}


def _cpu_seconds() -> float:
    here = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (here, *here.children(recursive=True)))


def report(title: str, times: dict[str, Times], baseline: str) -> None:
    """Prints medians, the spread of the clock's, and each median as a multiple of the baseline's."""
    wall, cpu = ({name: float(np.median(t[i])) for name, t in times.items()} for i in (0, 1))
    print(f"\n{title:38} {'ms':>9} {'middle half':>17} {'CPU ms':>9}   times {baseline}: clock, CPU")
    for name, t in times.items():
        low, high = np.percentile(t.wall, [25, 75]) * 1e3
        # The kernel counts CPU time in hundredths of a second.
        ratios = f"{wall[name] / wall[baseline]:8.2f} {cpu[name] / max(cpu[baseline], 0.01):8.2f}"
        print(f"{name:38} {wall[name] * 1e3:9.1f} {low:8.1f}-{high:8.1f} {cpu[name] * 1e3:9.1f}   {ratios}")


def runtimes() -> Iterator[tuple[str, tff.framework.SyncContext]]:
    """The runtimes compared; each call starts a new native worker."""
    yield "native", tff_fen.runtime.create_native_context()
    yield "in process", IN_PROCESS[0]


# Made first thing in `main`: TensorFlow's threads can be set only before it starts.
IN_PROCESS: list[tff.framework.SyncContext] = []


def main(argv: list[str]) -> None:
    del argv
    IN_PROCESS.append(tff_fen.runtime.create_inprocess_context())
    threads = len(os.sched_getaffinity(0))
    if "mnist" in flags.FLAGS.workloads:
        workload = mnist()
        contenders = {name: on(context, lambda: algorithm_3(workload)) for name, context in runtimes()}
        contenders["in process, usual executor"] = with_usual_executor(workload)
        contenders["floor"] = floor(workload, threads)
        contenders["floor with the in-process loop"] = floor(workload, threads, with_loops=True)
        default = tff.backends.native.create_sync_local_cpp_execution_context()
        contenders["TFF FedProx (Keras), native default"] = on(default, stock_fed_prox)
        contenders |= {f"TFF FedProx (Keras), {name}": on(context, stock_fed_prox) for name, context in runtimes()}
        report("mnist, Algorithm 3, a round", seconds(contenders, flags.FLAGS.rounds), "in process")
    if "cifar" in flags.FLAGS.workloads:
        images = cifar()
        contenders = {name: on(context, lambda: algorithm_3(images)) for name, context in runtimes()}
        contenders["floor"] = floor(images, threads)
        contenders["floor with the in-process loop"] = floor(images, threads, with_loops=True)
        report("cifar, Algorithm 3, a round", seconds(contenders, flags.FLAGS.rounds), "in process")
    if "lstm" in flags.FLAGS.workloads:
        texts = lstm()
        contenders = {name: on(context, lambda: algorithm_3(texts)) for name, context in runtimes()}
        contenders["in process, usual executor"] = with_usual_executor(texts)
        with mock.patch.object(tff_fen, "fuse_lstm", lambda model: model):
            contenders["in process, Keras's loop"] = on(IN_PROCESS[0], lambda: algorithm_3(texts))
        report("lstm, Algorithm 3, a round", seconds(contenders, flags.FLAGS.rounds), "in process")
    if "overhead" in flags.FLAGS.workloads:
        for num_clients in (10, 100, 1000):
            contenders = {name: on(context, lambda: additions(num_clients)) for name, context in runtimes()}  # noqa: B023
            report(f"{num_clients} clients of one addition", seconds(contenders, flags.FLAGS.rounds), "in process")


if __name__ == "__main__":
    fed_prox.define_flags()
    flags.DEFINE_multi_enum("workloads", _NAMES, _NAMES, "What to time.")
    app.run(main)
