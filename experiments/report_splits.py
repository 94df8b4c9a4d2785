"""What a report draws of a split: examples by client and class, from the data themselves."""

from __future__ import annotations

import numpy as np

from experiments.foreign import is_foreign
from experiments.report import texts
from experiments.report.groups import Group

# Clients in a picture of a split: more are no more to be seen, and take minutes to count.
MOST_DRAWN = 10_000


def count_split(group: Group) -> np.ndarray | str:
    """Returns examples by client and class of a group's split, or why they cannot be had."""
    if is_foreign(group.scenario.task):
        return texts.OWN_DATA
    # Here, since only this needs TensorFlow, which takes ten seconds to import.
    from experiments.loading import check_task_of, count_labels, load_task_of, training_set_of
    from tasks.data_sets.sources import DataUnavailableError

    config, training_set = group.first.config, group.scenario.training_set
    if (config.num_clients or 0) > MOST_DRAWN:
        return texts.NO_PICTURE.format(reason=f"{config.num_clients:,} clients, {MOST_DRAWN:,} are the most")
    try:
        check_task_of(config)
        if training_set and training_set != training_set_of(config):
            return texts.OTHER_DATA.format(training_set=training_set)
        return count_labels(load_task_of(config))
    except DataUnavailableError:
        return texts.NO_DATA
    except (ValueError, TypeError, OverflowError, MemoryError) as error:  # the values are somebody else's
        return texts.NO_PICTURE.format(reason=str(error)[:300].rstrip(".") or "there is no memory for it")
