"""The columns of a round, `metrics.csv`: one list of their names, and of what is done with them.

Columns of a message have its name inside: `client_work/train/delta/non_zeros`, `uplink_control_bytes`. The first
message of a process has none in the columns of bytes: `uplink_bytes`. A codec whose bytes are only counted follows:
`uplink_bytes_float16`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column, or one for each message.

    Attributes:
      name: with `{message}` and `{codec}` where there is one for each.
      text: what it is.
      summed: whether a summary has its sum over the rounds.
    """

    name: str
    text: str
    summed: bool = False

    def of(self, message: str = "", codec: str = "") -> str:
        """The name for a message and a codec."""
        return self.name.format(message=message, codec=codec)

    def messages(self, names: Iterable[str]) -> list[str]:
        """The messages for which there is such a column, without those of codecs."""
        pattern = re.escape(self.name).replace(r"\{message\}", "(.*?)").replace(r"\{codec\}", "")
        return [found[1] for name in names if (found := re.fullmatch(pattern, name))]


ROUND = Column("round", "number of the round, from 1")
LOSS = Column("client_work/train/loss", "mean of the participants' training losses")
PARTICIPANTS = Column("client_work/train/participants", "clients that took part")
CONTRIBUTING = Column("client_work/train/contributing_clients", "participants whose update counted")
NON_FINITE = Column("client_work/train/non_finite_clients", "participants whose update was not finite")
NON_ZEROS = Column("client_work/train/{message}/non_zeros", "elements that are not zero, of all participants")
NON_ZERO_SHARE = Column("client_work/train/{message}/non_zero_share", "their share of all elements")
ENTROPY = Column("client_work/train/{message}/entropy_trunc", "bits per parameter, bins of 0.01, mean of participants")
DRIFT = Column("aggregator/drift", "root mean square distance of the local models from their mean")
UPLINK = Column("uplink{message}_bytes{codec}", "bytes that clients sent", summed=True)
DOWNLINK = Column("downlink{message}_bytes", "bytes that the server sent to all participants", summed=True)
EPSILON = Column("dp_epsilon", "privacy spent by all releases so far")
RELEASES = Column("dp_releases", "releases so far: rounds, and those that were rolled back and run again")
LOWER_BOUND = Column("dp_lower_bound", "1 where there may have been releases that nobody counted")
ACCURACY = Column("accuracy", "of the server's model on the test set; empty where it was not due")
TEST_LOSS = Column("test_loss", "of the same model")
AVERAGE_ACCURACY = Column("average_accuracy", "of the mean of the participants' models")
AVERAGE_TEST_LOSS = Column("average_test_loss", "of the same model")
SECONDS = Column("seconds", "by the clock, since the end of the round before; evaluation included")

# Written, and read by nobody here.
_OTHERS = (
    Column("client_work/train/num_examples", "examples of the participants whose update counted"),
    Column("client_work/train/accuracy", "of the participants while they trained; a metric of the task's model"),
    Column("client_work/train/{message}/norm", "Euclidean, mean of the participants"),
    Column("client_work/train/{message}/entropy_round", "as entropy_trunc, numbers rounded and not cut off"),
    Column("aggregator/{message}_norm", "of what the aggregator carries, h or control"),
    Column("aggregator/usable", "0 where an aggregate was not finite or nobody contributed, so that nothing moved"),
    Column("distributor/{message}/non_zeros", "of what the server sent; theta, and what it shares beside the model"),
    Column("distributor/{message}/norm", "of the same"),
    Column("distributor/{message}/entropy_trunc", "of the same"),
    Column("distributor/{message}/entropy_round", "of the same"),
)

COLUMNS = (
    ROUND, LOSS, PARTICIPANTS, CONTRIBUTING, NON_FINITE, NON_ZEROS, NON_ZERO_SHARE, ENTROPY, DRIFT, UPLINK, DOWNLINK,
    EPSILON, RELEASES, LOWER_BOUND, ACCURACY, TEST_LOSS, AVERAGE_ACCURACY, AVERAGE_TEST_LOSS, SECONDS, *_OTHERS,
)  # fmt: skip
"""All that this project reads or writes; a user's model and TFF's aggregators may report more."""

NOT_EXACT = (SECONDS.name,)
"""What a repeated or resumed run does not give to the bit; everything else it does."""
UPDATE, LOCAL_MODEL = "delta", "theta"
"""What is measured of every process: the update it sends, and the local model, which it does not send."""
CLIENT_BYTES = "client_bytes"
"""Beside the columns, where clients are measured one by one: what each participant sent, in the order of the sample."""
HISTOGRAM = "histogram"
"""Beside the columns: how many elements of the updates are zero and how large the others are, see `bytes`."""


def is_public(name: str) -> bool:
    """Whether a metric of a process tells nothing of single clients: who takes part follows from the seed."""
    return name == PARTICIPANTS.name


def is_measured(name: str) -> bool:
    """Whether a column is of what clients computed or sent, exactly."""
    return (name.startswith(("client_work/", "aggregator/")) and not is_public(name)) or name.startswith("uplink")


def of_message(column: Column, name: str, first: bool, codec: str = "") -> str:
    """The column of bytes of a message; the first one has no name in it."""
    return column.of("" if first else f"_{name}", f"_{codec}" if codec else "")


def is_sent(name: str) -> bool:
    """Whether a column is of bytes that clients really sent."""
    return bool(UPLINK.messages([name]))


def is_among(name: str, columns: Iterable[Column]) -> bool:
    """Whether a name is one of these columns, for whatever message and codec."""
    return any(re.fullmatch(column.of(".*", ".*"), name) for column in columns)


def is_summed(name: str) -> bool:
    """Whether a summary has the column's sum."""
    return is_among(name, (column for column in COLUMNS if column.summed))


_COUNTS = (ROUND, PARTICIPANTS, CONTRIBUTING, NON_FINITE, NON_ZEROS, UPLINK, DOWNLINK)


def is_count(name: str) -> bool:
    """Whether a column counts something: its numbers are finite and not negative."""
    return is_among(name, _COUNTS)


def codec_of(name: str) -> str | None:
    """The codec whose bytes were only counted, of the first message; `None` for any other column."""
    prefix = UPLINK.of() + "_"
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def bytes_sent(row: Mapping[str, Any]) -> int:
    """What clients sent in a round, or in all rounds of a summary."""
    return int(sum(value or 0 for name, value in row.items() if is_sent(name)))


def best_accuracy(row: Mapping[str, Any]) -> Any:
    """Of the mean of the participants' models where a method has one, else of the server's model."""
    return row.get(AVERAGE_ACCURACY.name, row.get(ACCURACY.name))


def evaluation(row: Mapping[str, Any]) -> dict[str, Any]:
    """The accuracies in a row or in a summary."""
    return {column.name: row[column.name] for column in (ACCURACY, AVERAGE_ACCURACY) if column.name in row}
