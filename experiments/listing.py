"""What `--list` prints: the names that flags take, and what each stands for."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.compression import COMPRESSIONS
from experiments.methods import ALGORITHMS, METHODS
from experiments.presets import SETS, splits_by_task

TASKS = {
    "mnist": "60 000 + 10 000 images of digits; MLP, 199 210 parameters",
    "emnist_letters": "images of the first ten letters; MLP, 89 610 parameters",
    "cifar10": "50 000 + 10 000 colour images; CNN, 797 962 parameters",
    "cifar100": "50 000 + 10 000 colour images, 100 classes; CNN, 815 332 parameters",
    "shakespeare": "characters of Shakespeare's roles; 2-layer LSTM, 132 720 parameters",
    "digits": "1400 + 397 small images, installed with scikit-learn; MLP, 6310 parameters",
    "synthetic": "synthetic(alpha, beta), generated; softmax regression, 610 parameters",
}
"""The tasks of `tasks.registry`, which imports TensorFlow."""


def list_presets() -> str:
    """Data sets, splits and methods, each preset being one of each."""
    splits = {task: "  ".join(names) for task, names in splits_by_task().items()}
    methods = {key: method.title for key, method in METHODS.items()}
    sets = {name: f"{len(members)} methods: {', '.join(members)}" for name, members in SETS.items()}
    return "\n\n".join(
        [
            "A preset is DATA SET/SPLIT/METHOD; /all at the end, not for digits: all clients take part in every round. "
            "Any\npart may be a pattern, as in 'mnist/*/paper'.",
            _table("data set", splits),
            _table("method", {**methods, **sets}),
        ]
    )


def list_algorithms() -> str:
    """The algorithms, with the flags that are for one alone."""
    about = {}
    for key, row in ALGORITHMS.items():
        more = {f"--hyperparameters={name}={value.default}": value.text for name, value in row.hyperparameters.items()}
        own = ", ".join([*(f"--{name}" for name in row.settings), *(f"{flag} ({text})" for flag, text in more.items())])
        numbered = f"; with l1 > 0 the paper's Algorithm {row.number}" if row.number else ""
        needs = "".join(f"; --{name} is {value:g} if not given" for name, value in row.needs.items())
        about[key] = f"{row.title}{numbered}{needs}{f'; also takes {own}' if own else ''}"
    return _table("algorithm", {**about, "MODULE:FUNCTION": "your own, see docs/extending.md"})


LISTS = {
    "tasks": lambda: _table("task", {**TASKS, "MODULE:FUNCTION": "your own, see docs/extending.md"}),
    "presets": list_presets,
    "algorithms": list_algorithms,
    "codecs": lambda: _table("codec", {row.form: row.text for row in COMPRESSIONS.values() if row.setting == "uplink"}),
}
"""What `--list` can print, by name."""


def _table(heading: str, rows: Mapping[str, str]) -> str:
    width = max(len(heading), *map(len, rows))
    return "\n".join([heading, *(f"  {name:{width}}  {text}" for name, text in rows.items())])
