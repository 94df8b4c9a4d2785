"""What the page says: introductions, captions, and sentences on what is missing."""

from __future__ import annotations

from experiments import methods
from experiments.methods import ELASTIC_NET, METHODS
from experiments.presets import example_preset

TITLE = "FedElasticNet: what is sent, and what it comes to"
INTRODUCTION = (
    "{runs} runs of FedElasticNet (Kim, Woo, Seo and Kim, ICLR 2023) and of the methods it is added to, beside the "
    "paper's figures. Every number comes from the runs' metrics.csv. Below each table and picture stand the "
    "commands that make its runs and this page."
)
SHORT = (
    "Each algorithm of the paper against the method it is added to, with the paper's penalties and equally many "
    "rounds. Bytes are of messages really encoded, without loss, for both."
)
_PAIRS = [(m.baseline.title, m.title) for m in METHODS.values() if m.variant is ELASTIC_NET and m.baseline]
NO_PAIR = (
    "There is no pair of runs of equally many rounds: "
    + ", ".join(f"{plain} and {sparse}" for plain, sparse in _PAIRS)
    + "."
)
_ENTROPY = (
    "Entropy in bits a parameter of a histogram with bins of 0.01 (by truncation), mean over the participants, "
    "summed over all rounds; beside it the mean of a round."
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
NO_HYPERPARAMETERS = "No run has the paper's values of one of its data sets."
FIGURE_1 = (
    "Test accuracy by round and, which the paper does not show, by megabytes that clients really sent, encoded "
    "without loss unless the label says otherwise. The axis begins where all are after a tenth of the rounds."
)
SHADED = " Shaded: from the least to the most of several seeds."
NO_FIGURE_1 = "No run was evaluated on its test set yet."
FIGURE_2 = (
    "Magnitudes of the elements of all updates of the last round, in quarters of a decade. Zeros, which are not "
    "sent, are in the titles. The paper's figure has signed values, of CIFAR-10."
)
NO_UPDATES = (
    "There is no updates.csv in {runs}: the run has not ended, or was made by an earlier version. The same command "
    "again writes it."
)
NO_FIGURE_2 = f"There is no run of {', '.join(METHODS[key].title for key in methods.FIGURE_2)}."
L1 = (
    "Accuracy and share of non-zeros by l1, all else alike. l1 = 0 with the threshold is the ablation: that much is"
    " the threshold's doing. The proximal step gives zeros without a threshold."
)
NO_L1 = (
    f"No two runs differ in l1 alone. Such are made by `python run_experiment.py --preset={example_preset('mnist')} "
    "--grid=l1=0,1e-2,1e-4,1e-6,1e-8`."
)
PARETO = (
    "Accuracy at the end against megabytes sent. Filled points are on the front: no other sends less and is at "
    "least as accurate. Circles: messages without loss; squares: float16; diamonds: quantised; triangles: top-k; "
    "crosses: another aggregator."
)
BARS = " Bars: standard deviation over seeds."
NO_PARETO = "There are no two runs on the same data and split."
SPLIT = (
    "{examples:,} examples of {classes} classes at {clients} clients, seed {seed}: examples of each client (above),"
    " and shares of its classes (below)."
)
NO_SPLITS = "Left out, as --nosplits asks."
NO_DATA = "the data are not at hand."
OTHER_DATA = "the runs were trained on the {training_set} training set, which --data_dir does not name here."
OWN_DATA = "a data set of your own, which a report does not load."
DRIFT = (
    "Root mean square distance of a round's local models from their mean. It is measured for methods that correct "
    "drift."
)
NO_DRIFT = "There is no run of a method that corrects drift, for which it is measured."
PRIVACY = (
    "Epsilon spent by the client that took part in most rounds. No amplification by sampling is claimed, since who "
    "takes part follows from the published seed."
)
NO_PRIVACY = "There is no run with differential privacy (--aggregator=dp)."
ALL_RUNS = (
    "Times fewer: against sending every element as float32. 'Only counted': bytes that the same messages would have"
    " had in other codecs, which were not trained through."
)
