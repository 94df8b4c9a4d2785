"""What the page says: introductions, captions, and sentences on what is missing."""

from __future__ import annotations

from experiments.compression import legend
from experiments.methods import ELASTIC_NET, METHODS
from experiments.presets import example_preset

TITLE = "FedElasticNet: what is sent, and what it comes to"
LEAD = (
    "Test accuracy by megabytes that clients sent, encoded as they would be on the wire: further left is cheaper, "
    "further up is better."
)
INTRODUCTION = (
    "{runs} runs of FedElasticNet (Kim, Woo, Seo and Kim, arXiv:2210.02940) and of the methods it is added to, beside "
    "the paper's figures. Every number comes from the runs' metrics.csv. A method's name alone stands for the values "
    "of its preset; brackets hold what differs. Below each table and picture stand the "
    "commands that make its runs, in their folders, and this page."
)
SHORT = (
    "Each algorithm with an elastic net against the same without it: equally many rounds, all else alike. Bytes are of "
    "messages really encoded; without loss unless a codec (uplink) is named."
)
NOT_PAIRED = "Of {count} settings with an elastic net there is no run without it to compare with: {names}."
_PAIRS = [(m.baseline.title, m.title) for m in METHODS.values() if m.variant is ELASTIC_NET and m.baseline]
NO_PAIR = "pairs of equally many rounds, such as " + ", ".join(f"{plain} and {sparse}" for plain, sparse in _PAIRS)
_ENTROPY = (
    "Entropy in bits per parameter of a histogram with bins of 0.01 (by truncation), mean over the participants, "
    "summed over all rounds; beside it the mean per round."
)
PAPER_TABLES = {
    2: (
        "Table 2: non-zeros sent, 10 % of the clients",
        "Number of non-zero elements sent, summed over all rounds, in 10⁷. The share is that of all elements, which "
        "does not depend on the number of rounds; the paper's is against its own dense figure.",
    ),
    3: ("Table 3: entropy, 10 % of the clients", _ENTROPY),
    4: ("Table 4: entropy, all clients", _ENTROPY),
}
ACCURACIES = (
    "The paper prints no accuracies, only curves. Here they are those after the last round; where a method has a mean "
    "of the participants' models beside the server's model, they are of that mean."
)
HYPERPARAMETERS = (
    "* not in the paper: assumed here, after the public code that the paper builds on. A value without * is the paper's"
    " or was given by a flag. A dash: the method has none. Where the paper's figure is another one it stands in"
    " brackets."
)
NO_HYPERPARAMETERS = "runs with the paper's values on one of its data sets"
FIGURE_1 = (
    "Test accuracy by round and, which the paper does not show, by megabytes that clients really sent, encoded "
    "without loss unless the label says otherwise. The axis of accuracy begins where all are after a tenth of the "
    "rounds, and spans "
    "at least eight standard errors of the test set, so that a few of its examples make no difference that one sees."
)
SHADED = " Shaded: from the least to the most of several seeds."
NO_FIGURE_1 = "runs that were evaluated on their test set"
FIGURE_2 = (
    "Magnitudes of the elements of all updates of the last round, of all seeds together, in quarters of a decade. "
    "Zeros, which are not sent, are in the titles. The bin in which the smallest magnitude lies that can be sent (the "
    "threshold, or what a quantiser makes of it) is drawn from there on. The paper's figure has signed values, of "
    "CIFAR-10."
)
NO_UPDATES = "there is no updates.csv: the run has not ended, or was made by an earlier version. Its command writes it"
NO_FIGURE_2 = "runs that have ended, with their updates.csv"
L1 = (
    "Accuracy and share of non-zeros by l1, all else alike. l1 = 0 with the threshold is the ablation: that much is"
    " the threshold's doing. The proximal step gives zeros without a threshold."
)
NO_L1 = (
    f"runs that differ in l1 alone, as `python run_experiment.py --preset={example_preset('mnist')} "
    "--grid=l1=0,1e-2,1e-4,1e-6,1e-8` makes them"
)
PARETO = (
    "Accuracy at the end against megabytes sent. Filled points are on the front: no other sends less and is at "
    "least as accurate. Pale points are truncated runs, which are on no front. Circles: messages without loss; "
    f"{legend()}; crosses: another aggregator."
)
BARS = " Bars: standard deviation over seeds."
NO_PARETO = "two settings on the same data and split, with accuracy and bytes"
NO_OTHER_L1 = "no other run differs from them in l1 alone"
NOT_MEASURED = "accuracy or bytes of some run are not known"
NOT_EVALUATED = "not evaluated on the test set yet"
SPLIT = (
    "{examples:,} examples of {classes} classes at {clients} clients, seed {seed}: examples of each client (above),"
    " and shares of its classes (below)."
)
NO_SPLITS = "pictures of the splits, which --nosplits leaves out"
NO_DATA = "the data are not at hand. With the data, `COMMAND` draws it."
OTHER_DATA = (
    "the runs were trained on the {training_set} training set, which --data_dir does not name here. With it, `COMMAND` "
    "draws the split."
)
NO_PICTURE = "no picture: {reason}."
OWN_DATA = "a data set of your own, which a report does not load."
DRIFT = "Root mean square distance of a round's local models from their mean."
NO_DRIFT = "methods that correct drift, for which it is measured"
NOT_CORRECTED = "drift is not measured of this method"
CLIENTS = (
    "Accuracy after the last round on each client's own training data, in per cent: mean of the worst tenth of the "
    "clients, and quantiles; bytes that a client sent in all rounds; and the share of rounds in which it took part."
)
NO_CLIENTS = "runs with `--per_client_metrics`"
PRIVACY = (
    "Epsilon spent by the client that took part in most releases: rounds, and those that were rolled back and run "
    "again. ≥: some may not have been counted. No amplification by sampling is claimed, since who takes part follows "
    "from the published seed. 'Updates only': beside the model the folder has losses, norms or bytes of clients, exact "
    "ones, which a simulation sees and a deployment would not. The clients' states in store/ are never private."
)
NO_PRIVACY = "differential privacy (--aggregator=dp)"
ALL_RUNS = (
    "Times fewer: against sending every element as float32. 'Only counted': bytes that the same messages would have"
    " had in other codecs, which were not trained through."
)
LEFT_OUT = "Left out"
UNREADABLE = "These folders cannot be read. All else is drawn without them."
TWICE = "{name} holds the same numbers as another folder of the same seed, and counts once."
