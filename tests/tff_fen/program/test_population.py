"""Clients as users have them: dictionaries, TFF's `ClientData`, ids that are strings, data of the wrong kind."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models, small_run
from tests.support.small_run import CLIENTS, sample
from tests.tff_fen.program.test_run_rounds import assert_same
from tff_fen.program.sampling import sample_uniform

NAMES = ["echo", "delta", "charlie", "bravo", "alpha"]  # not in their alphabetic order: places are what counts
ARRAYS = {k: models.examples(6 + k, seed=k) for k in range(CLIENTS)}
BY_NAME = {NAMES[k]: examples for k, examples in ARRAYS.items()}
OTHER_ORDER = dict(reversed(BY_NAME.items()))


def sample_names(number: int) -> list[str]:
    return [NAMES[k] for k in sample(number)]


@pytest.fixture(scope="module")
def process() -> Any:
    return small_run.build("fed_dyn")


@pytest.fixture(scope="module")
def client_data() -> tff.simulation.datasets.ClientData:
    """Single examples, as TFF's data sets have them."""
    return tff.simulation.datasets.TestClientData(
        {name: collections.OrderedDict(x=x, y=y) for name, (x, y) in BY_NAME.items()}
    )


def in_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.batch(4).map(lambda example: (example["x"], example["y"]))


@pytest.fixture(scope="module")
def by_function(process: Any) -> Any:
    return tff_fen.run_rounds(process, lambda k: tf.data.Dataset.from_tensors(ARRAYS[k]), sample, 2)


def assert_equal_results(found: Any, expected: Any) -> None:
    assert found.metrics == expected.metrics
    assert_same(found.state, expected.state)


def test_a_dictionary_of_arrays_is_the_function_written_by_hand(process: Any, by_function: Any) -> None:
    assert_equal_results(tff_fen.run_rounds(process, ARRAYS, sample, 2), by_function)
    datasets = {k: tf.data.Dataset.from_tensors(list_or_tuple) for k, list_or_tuple in ARRAYS.items()}
    assert_equal_results(tff_fen.run_rounds(process, datasets, sample, 2), by_function)
    lists = {k: [*pair] for k, pair in ARRAYS.items()}
    assert_equal_results(tff_fen.run_rounds(process, lists, sample, 2), by_function)


def test_strings_are_numbered_by_their_places(process: Any, by_function: Any) -> None:
    result = tff_fen.run_rounds(process, BY_NAME, sample_names, 2)
    assert_equal_results(result, by_function)
    for k, name in enumerate(NAMES):
        assert_same(result.client_state(name), by_function.client_state(k))
    assert_same(result.client_state(np.str_("echo")), by_function.client_state(0))


def test_a_client_data_of_tff(process: Any, client_data: Any, by_function: Any) -> None:
    """Batches of it make the same minibatches, for these are taken from all examples of a client."""
    result = tff_fen.run_rounds(process, client_data.preprocess(in_batches), sample_names, 2)
    assert_equal_results(result, by_function)
    assert result.client_state("alpha").client_id == client_data.client_ids.index("alpha")
    draw = tff.simulation.build_uniform_sampling_fn(client_data.client_ids, random_seed=1)
    assert len(tff_fen.run_rounds(process, client_data.preprocess(in_batches), lambda t: draw(t, 2), 1).metrics) == 1


def test_a_number_draws_so_many_clients(process: Any) -> None:
    found = tff_fen.run_rounds(process, BY_NAME, 3, 2)
    expected = tff_fen.run_rounds(process, ARRAYS, lambda t: sample_uniform(t, CLIENTS, 3), 2)
    assert_equal_results(found, expected)


@pytest.mark.parametrize("sampling", [sample_names, 3], ids=["function", "number"])
def test_a_folder_keeps_the_numbers_of_its_clients(process: Any, sampling: Any, tmp_path: pathlib.Path) -> None:
    """The dictionary comes in another order on resume, as one made from a set or a listing of files may."""
    tff_fen.run_rounds(process, BY_NAME, sampling, 1, folder=tmp_path)
    resumed = tff_fen.run_rounds(process, OTHER_ORDER, sampling, 3, folder=tmp_path)
    whole = tff_fen.run_rounds(process, BY_NAME, sampling, 3)
    assert_equal_results(resumed, whole)
    for name in NAMES:
        assert_same(resumed.client_state(name), whole.client_state(name))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({n: BY_NAME[n] for n in NAMES[1:]}, "5 ids from 'alpha' to 'echo' there, 4 ids from 'alpha' to 'delta' now"),
        (ARRAYS, "5 ids from 'alpha' to 'echo' there, 5 ids from 0 to 4 now"),
        (ARRAYS.get, "5 ids from 'alpha' to 'echo' there, integers as a function takes them now"),
    ],
)
def test_a_folder_of_other_clients_is_refused(process: Any, other: Any, message: str, tmp_path: pathlib.Path) -> None:
    tff_fen.run_rounds(process, BY_NAME, 2, 1, folder=tmp_path)
    with pytest.raises(ValueError, match=rf"was begun with other clients: {message}\. .* use another folder"):
        tff_fen.run_rounds(process, other, sample, 2, folder=tmp_path)


def test_integers_are_the_same_clients_in_every_form(process: Any, tmp_path: pathlib.Path) -> None:
    """A folder that was made with a function, as all were once, goes on with a dictionary, and the other way round."""
    forms = [lambda k: tf.data.Dataset.from_tensors(ARRAYS[k]), ARRAYS]
    expected = tff_fen.run_rounds(process, ARRAYS, sample, 2)
    for i, (first, second) in enumerate((forms, reversed(forms))):
        tff_fen.run_rounds(process, first, sample, 1, folder=tmp_path / str(i))
        assert_equal_results(tff_fen.run_rounds(process, second, sample, 2, folder=tmp_path / str(i)), expected)


def changed(dtype: Any, part: int) -> dict[int, Any]:
    return {k: tuple(a.astype(dtype) if i == part else a for i, a in enumerate(ARRAYS[k])) for k in ARRAYS}


def function_of(arrays: Any) -> Any:
    return lambda k: tf.data.Dataset.from_tensors(arrays[k])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(np.float64, 0), r"client 0 have x of dtype float64 .* takes float32 .*: x\.astype\(np\.float32\)"),
        (changed(np.int64, 1), r"client 0 have y of dtype int64 .* takes int32 .*: y\.astype\(np\.int32\)"),
        (function_of(changed(np.float64, 0)), r"client 1 .*map\(lambda x, y: \(tf\.cast\(x, tf\.float32\), y\)\)"),
        (function_of(changed(np.int64, 1)), r"client 1 have y .*map\(lambda x, y: \(x, tf\.cast\(y, tf\.int32\)\)\)"),
        ({0: 1}, "found for client 0 the value 1 in one of type dict"),
        ({0: ARRAYS[0], 1: None}, "found for client 1 the value None"),
        (lambda k: tf.data.Dataset.from_tensor_slices(ARRAYS[k]), r"single examples .* Batch them: dataset\.batch"),
        ({0: ARRAYS[0], "a": ARRAYS[1]}, "A client id must be a int, found 'a' of type str. Let all ids be integers"),
        ({0: (np.ones((4, 9), np.float32), ARRAYS[0][1][:4])}, r"client 0 have x of shape \[4, 9\] .*Reshape it"),
        ({("a", 1): ARRAYS[0]}, r"A client id must be a int, found \('a', 1\)"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_with_what_to_write(
    process: Any, data: Any, message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(TypeError, match=message):
        tff_fen.run_rounds(process, data, sample, 1, folder=tmp_path / "new")
    assert callable(data) or not (tmp_path / "new").exists(), "what can be known at once leaves no trace"


def test_more_clients_than_the_process_was_built_for_are_refused(process: Any) -> None:
    with pytest.raises(ValueError, match=r"at most num_clients=5 clients.* found 99\. Build it with num_clients=99"):
        tff_fen.run_rounds(process, {k: ARRAYS[0] for k in range(99)}, 2, 1)


def test_a_client_data_of_single_examples_is_refused(process: Any, client_data: Any) -> None:
    with pytest.raises(TypeError, match=r"single examples where the process takes batches .*preprocess\(lambda"):
        tff_fen.run_rounds(process, client_data, 2, 1)


def test_arrays_of_unequal_lengths_and_nobody_are_refused(process: Any) -> None:
    x, y = ARRAYS[0]
    with pytest.raises(ValueError, match=r"arrays of client 'a' must have as many rows each, found \[6, 5\]"):
        tff_fen.run_rounds(process, {"a": (x, y[:-1])}, 1, 1)
    with pytest.raises(ValueError, match="must have at least one client, found none"):
        tff_fen.run_rounds(process, {}, 1, 1)


@pytest.mark.parametrize(
    ("data", "drawn", "error", "message"),
    [
        (BY_NAME, lambda t: ["alpha", "alfa"], ValueError, r"sample\(0\)\[1\] must be one of .*Did you mean 'alpha'"),
        (BY_NAME, lambda t: ["echo", "echo"], ValueError, r"different client ids, found \['echo'\] more than once"),
        (BY_NAME, lambda t: [0], ValueError, r"sample\(0\)\[0\] must be one of .*found 0"),
        (ARRAYS, lambda t: [1, 7], ValueError, r"sample\(0\)\[1\] must be one of the 5 client ids, found 7"),
        (ARRAYS, lambda t: [True], ValueError, "must be one of the 5 client ids, found True"),
        (ARRAYS.get, lambda t: ["a"], TypeError, r"found 'a' .* strings pass .* a .*ClientData or a dictionary"),
        (ARRAYS, 6, ValueError, "sample must be an integer from 1 to 5, found 6"),
        (ARRAYS, 0, ValueError, "sample must be an integer from 1 to 5, found 0"),
        (ARRAYS, True, TypeError, "sample must be an integer from 1 to 5, found True"),
        (ARRAYS, 2.5, TypeError, "sample must be a function .*found 2.5"),
        (ARRAYS.get, 2, TypeError, "sample=2 draws from all clients, which a function .* does not list"),
    ],
)
def test_bad_samples_are_refused(process: Any, data: Any, drawn: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tff_fen.run_rounds(process, data, drawn, 1)


def test_the_state_of_a_client_that_is_not_there(process: Any) -> None:
    result = tff_fen.run_rounds(process, BY_NAME, 2, 1)
    with pytest.raises(ValueError, match=r"client_id must be one of .*found 'alph'.* Did you mean 'alpha'"):
        result.client_state("alph")


def test_tffs_own_processes_take_them_too() -> None:
    process = small_run.build("tff_fed_avg")
    result = tff_fen.run_rounds(process, BY_NAME, 2, 1)
    assert result.client_state("alpha") is None and 0 <= result.metrics[0]["client_work/train/accuracy"] <= 1
    with pytest.raises(TypeError, match=r"x\.astype\(np\.float32\)"):
        tff_fen.run_rounds(process, changed(np.float64, 0), 2, 1)
