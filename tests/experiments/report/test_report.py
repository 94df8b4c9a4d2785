"""The report: figures from folders with known numbers, labels, commands, the page itself, and what it refuses."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from experiments.report import figures, page, paper, tables, texts
from experiments.report.commands import command_of, commands_of, report_command
from experiments.report.drawing import Look
from experiments.report.export import export_runs
from experiments.report.groups import Group, group_runs, main_groups
from experiments.report.html import Html, join
from experiments.report.pareto import pareto_front
from experiments.report.read import find_runs
from experiments.report.sections import Builder, l1_studies
from experiments.report.stored import ReportError
from tests.support.fake_results import PARTICIPANTS, write_run

ROOT = pathlib.Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def text_of(part: ET.Element | Html) -> str:
    """What a reader sees of a part of the page."""
    root = parsed(part) if isinstance(part, Html) else part
    return " ".join(" ".join(root.itertext()).split())


def parsed(part: Html) -> ET.Element:
    return ET.fromstring(f"<div>{part.content}</div>")


def rows_of(table: Html) -> list[list[str]]:
    """The cells of all rows but headings."""
    rows = [row for row in parsed(table).iter("tr") if row.find("td") is not None]
    return [[text_of(cell) for cell in row.iter("td")] for row in rows]


def build(groups: list[Group]) -> tuple[str, Builder]:
    builder = Builder(groups, "python make_report.py out", None)
    lead, sections = builder.lead(), builder.sections()
    return page.build_page("title", lead, sections, builder.end([])), builder


# --- reading


def test_a_run_is_read_with_its_numbers(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "a" / "run", "mnist/iid/algorithm_3", share=0.1, accuracy=0.9825, size=700_000)
    (run,) = find_runs([tmp_path])
    assert (run.name, run.rounds, run.finished, run.accuracy) == ("a/run", 100, True, 0.9825)
    assert run.bytes_sent == 70_000_000 and run.summary["participants"] == PARTICIPANTS
    assert run.summary["entropy_delta_sum"] == 25.0 and run.summary["entropy_theta_sum"] == 300.0
    assert run.non_zero_share == pytest.approx(0.1, abs=1e-6)
    assert run.updates is not None and run.updates.zeros == 900 and run.updates.counts.sum() == 2100
    assert find_runs([tmp_path / "a" / "run"])[0].name == "run", "a folder that is a run itself"


def test_a_run_that_goes_on_is_read_too(tmp_path: pathlib.Path) -> None:
    folder = write_run(tmp_path / "run", "mnist/iid/fed_dyn", rounds=7, participants=70, summary=False)
    (run,) = find_runs([tmp_path])
    assert run.rounds == 7 and not run.finished and run.accuracy == 0.98 and run.updates is None
    # After a summary of 5 rounds two more were done: neither its evaluation nor its updates are of the last one.
    (folder / "summary.json").write_text(json.dumps({"rounds": 5, "accuracy": 0.1, "average_accuracy": 0.1}))
    (folder / "updates.csv").write_text("lower,upper,count\n0,0,5\n0,1,5\n")
    (run,) = find_runs([tmp_path])
    assert not run.finished and run.accuracy == 0.98 and run.updates is None
    assert group_runs([run])[0].truncation == "truncated: 7 of 100 rounds"


def damage_row(text: str) -> str:
    return text[: text.rindex(",")]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda text: text[:50], "config.json is damaged: it is not JSON"),
        ("config.json", lambda text: "[]", "an object is expected, found list"),
        ("config.json", lambda text: text.replace('"assumed"', '"x"'), "'assumed' is missing"),
        ("config.json", lambda text: text.replace('"l1": 0.0', '"l1": -1'), "l1 must be a finite number"),
        ("config.json", None, "config.json is missing"),
        ("metrics.csv", lambda text: "", "has no round yet"),
        ("metrics.csv", damage_row, r"line 101 has \d+ fields of \d+"),
        ("metrics.csv", lambda text: text.replace("uplink_bytes", "bytes", 1), "no column 'uplink_bytes'"),
        ("metrics.csv", lambda text: text.replace("\n2,", "\n3,"), "line 3 is of round 3"),
        ("metrics.csv", lambda text: text.replace("1000000", "many", 1), "'many' in column 'uplink_bytes' of line 2"),
        ("metrics.csv", None, "metrics.csv is missing"),
        ("summary.json", lambda text: text[:-3], "summary.json is damaged: it is not JSON"),
        ("summary.json", lambda text: '{"rounds": 101}', "has 100 rounds, summary.json says 101"),
        ("updates.csv", lambda text: "lower,count\n0,1\n", "columns lower, upper, count"),
        ("updates.csv", lambda text: text.replace("0.0,0.0,900\n", ""), "the first row must count the zeros"),
    ],
)
def test_a_damaged_folder_is_named(file, change, message: str, tmp_path: pathlib.Path) -> None:
    folder = write_run(tmp_path / "good" / "run", "mnist/iid/fed_dyn")
    if change is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(change((folder / file).read_text()))
    with pytest.raises(ReportError, match=message) as caught:
        find_runs([tmp_path])
    assert str(folder) in str(caught.value), "names the folder"
    assert re.search("Run the experiment's command again|Wait for", str(caught.value)), "says what to do"


def test_no_runs_and_equal_names_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ReportError, match=r"No run found .* run_experiment.py --preset="):
        find_runs([tmp_path])
    with pytest.raises(ReportError, match="nowhere is no folder"):
        find_runs([tmp_path / "nowhere"])
    for place in ("a", "b"):
        write_run(tmp_path / place / "run", "mnist/iid/fed_dyn")
    with pytest.raises(ReportError, match="would both be called 'run'"):
        find_runs([tmp_path / "a", tmp_path / "b"])
    assert len(find_runs([tmp_path / "a", tmp_path / "a"])) == 1, "the same folder twice is one"


def test_the_exported_form_is_read_alike_and_holds_no_more(tmp_path: pathlib.Path) -> None:
    folder = write_run(tmp_path / "in" / "mnist" / "run", "mnist/iid/algorithm_3", share=0.1)
    for name in ("weights.npz", "accuracy.png", "events.out.tfevents.1.host.2"):
        (folder / name).write_text("x")
    (folder / "store").mkdir()
    write_run(tmp_path / "in" / "mnist" / "going", "mnist/iid/fed_dyn", rounds=3, participants=30, summary=False)
    old = write_run(tmp_path / "in" / "mnist" / "old", "mnist/iid/fed_prox")
    (old / "updates.csv").unlink()
    runs = find_runs([tmp_path / "in"])
    left_out = export_runs(runs, tmp_path / "out")
    assert [sentence.split(" ")[0] for sentence in left_out] == ["mnist/going", "mnist/old"]
    files = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    small = {f"mnist/run/{n}" for n in ("config.json", "metrics.csv", "summary.json", "updates.csv")}
    assert files == small | {f"mnist/old/{n}" for n in ("config.json", "metrics.csv", "summary.json")}
    assert not any(str(tmp_path) in p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file())
    again = {run.name: run for run in find_runs([tmp_path / "out"])}
    for run in runs:
        if run.finished:
            assert run.config == again[run.name].config
            assert {**run.summary, "seconds": 0.0} == again[run.name].summary
            np.testing.assert_equal(run.table, again[run.name].table)


# --- groups and commands


def test_labels_truncation_and_seeds(tmp_path: pathlib.Path) -> None:
    for seed, accuracy in enumerate((0.97, 0.98, 0.99)):
        write_run(tmp_path / f"s{seed}", "mnist/iid/algorithm_3", seed=seed, accuracy=accuracy)
    write_run(tmp_path / "q", "mnist/iid/algorithm_3", uplink="quantised:0.01", l1=1e-6)
    write_run(tmp_path / "lossless", "mnist/iid/algorithm_3", uplink="lossless", seed=3, accuracy=0.98)
    write_run(tmp_path / "short", "mnist/iid/fed_dyn", rounds=10, participants=100)
    write_run(tmp_path / "top", "mnist/iid/fed_avg", top_k=0.1)
    write_run(tmp_path / "t3", "mnist/iid/threshold_3")
    write_run(tmp_path / "t2", "mnist/iid/algorithm_2", l1=0.0)
    groups = group_runs(find_runs([tmp_path]))
    assert [(group.full_label, len(group.runs)) for group in groups] == [
        ("FedAvg (top_k=0.1)", 1),
        ("Algorithm 2, l1 = 0", 1),
        ("FedDyn [truncated: 10 of 100 rounds]", 1),
        ("Algorithm 3", 4),
        ("Algorithm 3 (l1=1e-06, uplink=quantised:0.01)", 1),
        ("Algorithm 3, l1 = 0", 1),
    ]
    seeds = groups[3]
    assert seeds.mean(lambda r: r.accuracy) == pytest.approx(0.98)
    assert seeds.spread(lambda r: r.accuracy) == pytest.approx(np.std([0.97, 0.98, 0.99, 0.98], ddof=1))
    assert groups[2].spread(lambda r: r.accuracy) is None
    assert [group.label for group in main_groups(groups)] == [
        "Algorithm 2, l1 = 0", "FedDyn", "Algorithm 3", "Algorithm 3, l1 = 0",
    ]  # fmt: skip
    assert "98.00 ± 0.82" in tables.accuracy(seeds)


def test_a_run_that_is_there_twice_counts_once(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, "mnist/iid/fed_dyn")
    write_run(tmp_path / "c", "mnist/iid/fed_dyn", accuracy=0.5)  # the same seed, but other numbers: none is hidden
    (group,) = group_runs(find_runs([tmp_path]))
    assert [run.accuracy for run in group.runs] == [0.98, 0.5]


def test_of_the_same_runs_those_with_most_rounds_are_main(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "a", "mnist/iid/fed_dyn", rounds=10, participants=100)
    write_run(tmp_path / "b", "mnist/iid/fed_dyn", rounds=20, participants=200)
    groups = group_runs(find_runs([tmp_path]))
    assert len(groups) == 2, "other numbers of rounds are not put together"
    assert [group.rounds for group in main_groups(groups)] == [20]


def test_commands_give_the_run_again(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "1", "mnist/dirichlet_0.3/algorithm_3")
    write_run(tmp_path / "2", "mnist/iid/algorithm_3", l1=1e-6, seed=3, uplink="quantised:0.01", rounds=100)
    write_run(tmp_path / "3", None, task="mnist", split="dirichlet:0.3", l2=0.1, l1=1.2345678e-5, rounds=30)
    write_run(tmp_path / "it's; 4", None, task="mnist", l2=0.1)
    at = f"--output=PATH/TO/{tmp_path.name}"
    assert [command_of(run) for run in find_runs([tmp_path])] == [
        f"python run_experiment.py --preset=mnist/dirichlet_0.3/algorithm_3 {at}/1",
        f"python run_experiment.py --preset=mnist/iid/algorithm_3 --seed=3 --l1=1e-06 --uplink=quantised:0.01 {at}/2",
        f"python run_experiment.py --task=mnist --split=dirichlet:0.3 --algorithm=fed_dyn --l1=1.2345678e-05 "
        f"--l2=0.1 {at}/3",
        f"python run_experiment.py --task=mnist --algorithm=fed_dyn --l2=0.1 '{at}/it'\"'\"'s; 4'",
    ]
    (own,) = find_runs([tmp_path / "1"])
    assert command_of(own).endswith("--output=PATH/TO/1"), "a folder that is a run itself"


def test_commands_are_put_together_if_they_make_the_same_folders(tmp_path: pathlib.Path) -> None:
    for name in ("fed_dyn", "algorithm_3"):
        write_run(tmp_path / "paper" / f"mnist-iid-{name}", f"mnist/iid/{name}")
    for l1, seed in itertools.product((0.0, 1e-2, 1e-6), (0, 1)):
        folder = tmp_path / "sweep" / f"mnist-iid-algorithm_3_l1={l1},seed={seed}"
        write_run(folder, "mnist/iid/algorithm_3", l1=l1, seed=seed)
    write_run(tmp_path / "named" / "mine", "mnist/iid/algorithm_3", seed=1)
    write_run(tmp_path / "named" / "mnist-iid-algorithm_3_seed=2", "mnist/iid/algorithm_3", seed=2)
    runs, at = find_runs([tmp_path]), f"--output=PATH/TO/{tmp_path.name}"
    made = "python run_experiment.py --preset=mnist/iid/algorithm_3"
    assert commands_of(runs) == [
        f"{made} --seed=1 {at}/named/mine",
        f"{made} --seed=2 {at}/named/mnist-iid-algorithm_3_seed=2",
        f"python run_experiment.py --grid=preset=mnist/iid/algorithm_3,mnist/iid/fed_dyn {at}/paper",
        f"{made} --grid=l1=0,0.01,1e-06 --grid=seed=0,1 {at}/sweep",
    ]
    some = [run for run in runs if "l1" in run.name and (run.config.l1, run.config.seed) != (0.01, 1)]
    assert commands_of(some) == [
        f"{made} --l1=0 --grid=seed=0,1 {at}/sweep".replace("--l1=0", "--grid=l1=0"),
        f"{made} --l1=0.01 {at}/sweep/mnist-iid-algorithm_3_l1=0.01,seed=0",
        f"{made} --grid=l1=1e-06 --grid=seed=0,1 {at}/sweep",
    ]


def test_the_commands_name_the_folders_that_the_runner_makes(tmp_path: pathlib.Path) -> None:
    """The same words, given to the planner of run_experiment.py."""
    from experiments.plan import folders_of, plan_runs

    grid = ["l1=0,1e-6", "weight_decay=0,0.1", "uplink=quantised:0.01,float16"]
    planned = plan_runs("digits/iid/algorithm_3", grid, {"rounds": 3})
    _, folders = folders_of(planned, str(tmp_path / "out"))
    for run, folder in zip(planned, folders, strict=True):
        values = {name: getattr(run.config, name) for name in ("l1", "weight_decay", "uplink")}
        write_run(folder, "digits/iid/algorithm_3", rounds=3, **values)
    assert commands_of(find_runs([tmp_path])) == [
        "python run_experiment.py --preset=digits/iid/algorithm_3 --rounds=3 --grid=l1=0,1e-06 "
        f"--grid=weight_decay=0,0.1 --grid=uplink=float16,quantised:0.01 --output=PATH/TO/{tmp_path.name}/out"
    ]


def test_a_sweep_without_a_preset_is_one_command(tmp_path: pathlib.Path) -> None:
    """Its folders are called after the methods that the values make, of which l1=0 is another."""
    from experiments.plan import folders_of, plan_runs

    swept = ("algorithm", "l1", "l2", "threshold", "seed", "rounds")
    planned = plan_runs(None, ["l1=0.001,0", "seed=0,1"], {"rounds": 3})
    _, folders = folders_of(planned, str(tmp_path / "out"))
    assert {folder.name.partition("_l1")[0] for folder in folders} == {"digits-algorithm_3", "digits-threshold_3"}
    for run, folder in zip(planned, folders, strict=True):
        values: dict[str, Any] = {name: getattr(run.config, name) for name in swept}
        write_run(folder, None, **values)
    assert commands_of(find_runs([tmp_path])) == [
        f"python run_experiment.py --rounds=3 --grid=l1=0.001,0 --grid=seed=0,1 --output=PATH/TO/{tmp_path.name}/out"
    ]


def test_groups_that_differ_in_rounds_or_digits_have_labels_of_their_own(tmp_path: pathlib.Path) -> None:
    runs: list[dict[str, Any]] = [{"l1": 0.00012345671}, {"l1": 0.00012345672}, {"rounds": 3}, {"rounds": 5}]
    for i, values in enumerate(runs):
        write_run(tmp_path / str(i), "digits/iid/algorithm_3", **values)
    labels = [group.full_label for group in group_runs(find_runs([tmp_path]))]
    assert len({*labels}) == 4, labels
    assert "Algorithm 3 (l1=0.00012345671)" in labels[2] + labels[3]


def test_the_reports_command_tells_nothing_of_the_machine(tmp_path: pathlib.Path) -> None:
    command = report_command([pathlib.Path("out/paper"), tmp_path / "mine"], pathlib.Path.cwd() / "out" / "r", None)
    assert command == "python make_report.py out/paper PATH/TO/mine --output=out/r"
    assert report_command([pathlib.Path("out")], pathlib.Path("out/r"), None, splits=False).endswith(" --nosplits")


# --- the paper's tables


def comparisons(folder: pathlib.Path, table: int) -> dict[str, paper.Comparison]:
    cells = [cell for cell in paper.read_cells() if cell.table == table]
    return {item.cell.name: item for item in paper.compare(cells, group_runs(find_runs([folder])))}


def test_table_2(tmp_path: pathlib.Path) -> None:
    for method, share in (("fed_dyn", 1.0), ("scaffold", 1.0), ("algorithm_2", 0.5), ("algorithm_3", 0.1)):
        write_run(tmp_path / method, f"mnist/iid/{method}", share=share)
    found = comparisons(tmp_path, 2)
    assert set(found) == {"FedDyn", "SCAFFOLD", "Algorithm 2", "Algorithm 3"}
    # 199 210 parameters of 1019 participants; SCAFFOLD's of two messages.
    assert found["FedDyn"].here == 20.299499 and found["FedDyn"].cell.agrees(found["FedDyn"].here)
    assert found["SCAFFOLD"].here == 40.598998 and not found["SCAFFOLD"].cell.agrees(found["SCAFFOLD"].here)
    assert found["Algorithm 3"].ratio == pytest.approx(2.0299499 / 2.55, abs=1e-6)
    assert found["Algorithm 2"].cell.scale == pytest.approx(36.98 / 40.58), "against two dense messages"
    assert found["FedDyn"].notes == (
        "0 of 202,994,990 elements are zero: 1 x 199,210 parameters x 1,019 participants over 100 rounds.",
    )
    assert "No whole number of participants gives the paper's 40.58." in found["SCAFFOLD"].notes[0]
    assert "updates 10.15, changes of control variates 10.15" in found["Algorithm 2"].notes[0]
    assert "assumed here" in found["Algorithm 3"].notes[-1] and "learning_rate" in found["Algorithm 3"].notes[-1]
    rows = rows_of(tables.paper_table(list(found.values())))
    assert rows[-1][:7] == ["Algorithm 3", "2.55", "2.03", "0.796", "12.6", "10.0", "98.00"]
    assert ["FedDyn", "20.3", "20.30", "1.000 as printed"] in [row[:4] for row in rows]


def test_table_2_explains_by_what_the_runs_say(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "short", "shakespeare/iid/fed_dyn", rounds=10, participants=14)
    write_run(tmp_path / "seed", "mnist/iid/fed_prox", seed=1, participants=1030, learning_rate=0.05)
    short = next(item for item in comparisons(tmp_path, 2).values() if item.cell.data_set == "Shakespeare")
    assert short.notes[0].startswith("truncated: 10 of 100 rounds.")
    assert any("132,720 parameters, the paper's 133,520; PyTorch's LSTM" in note for note in short.notes)
    table = tables.paper_table([short])
    assert rows_of(table)[0][0] == "FedDyn truncated: 10 of 100 rounds"
    assert rows_of(table)[0][3] == f"{14 * 132_720 / 1e7 / 1.99:.3f}"
    other = comparisons(tmp_path, 2)["FedProx"]
    assert any(note.startswith("1,030.0 participants over all rounds; the paper's FedProx") for note in other.notes)
    assert "Of what the paper does not give: learning_rate = 0.05 instead of 0.1." in other.notes
    assert not any("truncated" in note for note in other.notes)


def test_runs_with_other_penalties_are_not_compared_with_the_paper(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "l1", "mnist/iid/algorithm_3", l1=1e-6)
    write_run(tmp_path / "codec", "mnist/iid/algorithm_3", uplink="float16")
    write_run(tmp_path / "clients", "mnist/iid/algorithm_3", num_clients=50)
    write_run(tmp_path / "all", "mnist/iid/algorithm_3/all", participants=10_000)
    assert comparisons(tmp_path, 2) == {} == comparisons(tmp_path, 3)
    assert set(comparisons(tmp_path, 4)) == {"Algorithm 3"}


def test_another_training_set_is_another_place(tmp_path: pathlib.Path) -> None:
    """Runs on the pool are kept apart from others, say so, and have no ratio to the paper's but where all is sent."""
    for name, method, share, training_set in [
        ("a", "algorithm_3", 0.1, "pool"), ("b", "fed_dyn", 1.0, "pool"), ("c", "algorithm_3", 0.1, "official"),
        ("d", "algorithm_3", 0.1, None),
    ]:  # fmt: skip
        preset = f"emnist_letters/iid/{method}"
        write_run(tmp_path / name, preset, share=share, participants=2053, training_set=training_set)
    groups = {group.first.name: group for group in group_runs(find_runs([tmp_path]))}
    assert len({group.scenario for group in groups.values()}) == 3
    assert groups["a"].scenario.title.startswith("EMNIST-L (pool training set), IID")
    assert groups["a"].scenario.slug == "emnist_letters-pool-iid-100"
    cells = [cell for cell in paper.read_cells() if cell.table == 2]
    found = {item.group.first.name: item for item in paper.compare(cells, list(groups.values()))}
    assert found["a"].ratio is None and found["b"].ratio == found["b"].here / 18.4
    assert found["c"].ratio == found["d"].ratio == found["a"].here / found["a"].cell.value
    note = "Trained on the pool training set, not on the paper's images of EMNIST-L."
    assert [name for name in "abcd" if note in found[name].notes] == ["a", "b"]
    assert [row[3] for row in rows_of(tables.paper_table([found["a"]]))] == ["-"]
    runs = [groups["a"].first, groups["b"].first]
    assert all("--data_dir=PATH/TO/pool" in command for command in commands_of(runs)) and len(commands_of(runs)) == 2


def test_runs_from_before_images_were_augmented(tmp_path: pathlib.Path) -> None:
    """A stored folder without the field means none; such runs say so, have the command, and are compared as before."""
    for method, share in (("fed_dyn", 1.0), ("algorithm_3", 0.5)):
        folder = write_run(tmp_path / method, f"cifar10/iid/{method}", rounds=10, share=share, augment="none")
        about = json.loads((folder / "config.json").read_text())
        del about["config"]["augment"]
        (folder / "config.json").write_text(json.dumps(about))
    groups = group_runs(find_runs([tmp_path]))
    assert [group.label for group in groups] == ["FedDyn (augment=none)", "Algorithm 3 (augment=none)"]
    assert rows_of(tables.short_table(groups))[-1][:3] == [
        "Algorithm 3 (augment=none) truncated: 10 of 200 rounds", "FedDyn (augment=none)", "2.00",
    ]  # fmt: skip
    notes = [item.notes for item in comparisons(tmp_path, 2).values()]
    assert len(notes) == 2
    assert all("Of what the paper does not give: augment = none instead of flip_crop." in note for note in notes)
    assert [command_of(group.first).partition(" --output")[0] for group in groups] == [
        f"python run_experiment.py --preset=cifar10/iid/{m} --augment=none --rounds=10"
        for m in ("fed_dyn", "algorithm_3")
    ]


def test_table_3_is_of_models_or_of_updates_as_in_the_paper(tmp_path: pathlib.Path) -> None:
    for method in ("fed_prox", "fed_dyn", "algorithm_2"):
        write_run(tmp_path / method, f"mnist/dirichlet_0.6/{method}", entropies=(0.25, 3.0))
    found = comparisons(tmp_path, 3)
    figures_here = {name: item.here for name, item in found.items()}
    assert figures_here == {
        "FedProx": 300.0, "Algorithm 2": 25.0, "FedDyn (theta sent)": 300.0, "FedDyn (delta sent)": 25.0,
    }  # fmt: skip
    assert found["FedProx"].ratio == pytest.approx(300 / 249.63)
    assert found["FedProx"].cell.scale == pytest.approx(2.4963), "of a round"
    assert "of the updates it is 25.00, 12.0 times less" in found["FedProx"].notes[0]
    assert "control variates is 25.00" in found["Algorithm 2"].notes[0]
    assert not any("Of local models" in note for note in found["FedDyn (delta sent)"].notes)


def test_missing_cells_are_named(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "a", "mnist/iid/fed_dyn")
    cells = [cell for cell in paper.read_cells() if cell.table == 2 and cell.data_set == "MNIST"]
    text = tables.missing_cells(cells, paper.compare(cells, group_runs(find_runs([tmp_path]))))
    assert "MNIST IID (FedProx, Algorithm 1, SCAFFOLD, Algorithm 2, Algorithm 3)" in text
    assert "MNIST Dirichlet 0.6, MNIST Dirichlet 0.3 (FedProx" in text
    assert "--preset=mnist/iid/fed_prox" in text
    assert tables.missing_cells([], []) == ""


def test_hyperparameters_mark_what_is_assumed(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "a", "mnist/iid/algorithm_3", epochs=3)
    write_run(tmp_path / "b", "mnist/dirichlet_0.3/fed_dyn")
    write_run(tmp_path / "c", "mnist/iid/algorithm_3", l1=0.5)  # a study, not the paper's
    rows = rows_of(tables.hyperparameter_table(group_runs(find_runs([tmp_path]))))
    assert sorted(rows) == [
        [
            "MNIST",
            "Algorithm 3",
            "0.0001",
            "0.05",
            "0.005",
            "10",
            "0.1*",
            "1*",
            "3",
            "0.001*",
            "10*",
            "torch*",
            "0*",
            "none",
        ],
        ["MNIST", "FedDyn", "-", "0.05", "-", "10", "0.1*", "1*", "5*", "0.001*", "10*", "torch*", "0*", "none"],
    ]


# --- studies and the front


def test_l1_studies(tmp_path: pathlib.Path) -> None:
    for name in ("fed_dyn", "algorithm_3", "threshold_3", "proximal_3"):
        write_run(tmp_path / name, f"mnist/iid/{name}")
    write_run(tmp_path / "l1", "mnist/iid/algorithm_3", l1=1e-2)
    write_run(tmp_path / "other", "mnist/iid/algorithm_3", l1=1e-6, learning_rate=0.01)
    write_run(tmp_path / "a1", "mnist/iid/algorithm_1")
    (studies,) = l1_studies(group_runs(find_runs([tmp_path])))
    assert {study.label: [group.first.config.l1 for group in study.groups] for study in studies} == {
        "Algorithm 3, proximal, no threshold": [0.0, 1e-4],
        "Algorithm 3, subgradient, threshold 0.005": [0.0, 1e-4, 1e-2],
    }


def test_runs_without_another_l1_are_named(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "a", "mnist/iid/algorithm_3")
    write_run(tmp_path / "b", "mnist/iid/algorithm_3", l1=1e-2)
    write_run(tmp_path / "short", "mnist/iid/algorithm_3", l1=1e-3, rounds=5)
    content = str(Builder(group_runs(find_runs([tmp_path])), "python make_report.py x", None).sections())
    assert f"Not drawn, since {texts.NO_OTHER_L1}: Algorithm 3 (l1=0.001)" in content


def test_the_pareto_front() -> None:
    points = [(10.0, 90.0), (5.0, 90.0), (20.0, 95.0), (30.0, 95.0), (30.0, 94.0), (1.0, 10.0), (5.0, 90.0), (4.0, 9.0)]
    assert pareto_front(points) == [5, 1, 6, 2], "equal points are both on it"


def test_the_pareto_table(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "dense", "mnist/iid/fed_dyn", size=8_000_000, accuracy=0.983)
    write_run(tmp_path / "worse", "mnist/iid/fed_prox", size=8_000_000, accuracy=0.97)
    for seed, accuracy in enumerate((0.98, 0.982)):
        write_run(tmp_path / f"s{seed}", "mnist/iid/algorithm_3", seed=seed, accuracy=accuracy, size=800_000)
    groups = group_runs(find_runs([tmp_path]))
    rows = rows_of(tables.pareto_table(groups))
    assert [row[1:3] for row in rows] == [["FedProx", ""], ["FedDyn", "yes"], ["Algorithm 3", "yes"]]
    dense = 4 * 199_210 * PARTICIPANTS
    assert rows[2][3:] == ["80.00 ± 0.00", f"{dense / 80e6:.2f}", "98.10 ± 0.14", "2"]


# --- the page


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with something for every section."""
    folder = tmp_path_factory.mktemp("rich")
    for method, share in (("fed_dyn", 1.0), ("algorithm_3", 0.1), ("threshold_3", 0.1)):
        write_run(folder / method, f"mnist/iid/{method}", share=share, size=int(8e6 * share))
    write_run(folder / "scaffold", "mnist/iid/scaffold", rounds=12, participants=120)
    write_run(folder / "all", "mnist/iid/fed_prox/all", participants=10_000)
    write_run(folder / "dp", "mnist/iid/algorithm_3", aggregator="dp", accuracy=0.9)
    return folder


@pytest.fixture(scope="module")
def whole(rich: pathlib.Path) -> tuple[str, Builder]:
    return build(group_runs(find_runs([rich])))


def test_the_page_is_well_formed_and_needs_nothing_else(whole: tuple[str, Builder]) -> None:
    content, builder = whole
    root = ET.fromstring(content)
    assert not re.search(r"https?://|<script|@import|url\(", content)
    for name in ("src", "srcset"):
        found = [element.get(name, "data:image/png;") for element in root.iter()]
        assert all(value.startswith("data:image/png;") for value in found)
    assert not list(root.iter("link"))
    anchors = {element.get("id") for element in root.iter("section")}
    assert {a.get("href", "")[1:] for a in root.iter("a")} == anchors
    pictures = list(root.iter("img"))
    assert len(pictures) == len(builder.pictures) >= 6
    assert all(len(picture.get("alt", "")) > 30 for picture in pictures)
    for picture in root.iter("picture"):
        assert [s.get("media", "").count("(") for s in picture.iter("source")] == [2, 1, 1], "the most particular first"
    viewport = next(meta for meta in root.iter("meta") if meta.get("name") == "viewport")
    assert "width=device-width" in viewport.get("content", "")
    assert all("box" in (div.get("class") or "") for div in root.iter("div") if div.find("table") is not None)
    assert "prefers-color-scheme: dark" in page.CSS and "@media print" in page.CSS


def test_every_figure_and_table_names_its_commands(whole: tuple[str, Builder]) -> None:
    root = ET.fromstring(whole[0])
    for section in root.iter("section"):
        shown = section.findall("figure")
        commands = [text_of(pre) for pre in section.iter("pre")]
        assert len(commands) >= len(shown), section.get("id")
        assert all("python make_report.py out" in command for command in commands)
        if section.get("id") == "figure-1":
            assert "--preset=mnist/iid/scaffold --rounds=12" in commands[0]
            assert "--preset=mnist/iid/threshold_3 --output=PATH/TO/" in commands[0]
        if section.get("id") == "privacy":
            assert "--preset=mnist/iid/algorithm_3 --aggregator=dp" in commands[0]


def test_sections_show_what_is_there_and_name_what_is_not(whole: tuple[str, Builder], tmp_path: pathlib.Path) -> None:
    root = ET.fromstring(whole[0])
    sections = {section.get("id"): section for section in root.iter("section")}
    assert "10.00" in text_of(sections["short"]) and "Algorithm 3 FedDyn" in text_of(sections["short"])
    assert "truncated: 12 of 100 rounds" in text_of(sections["table-2"])
    assert "truncated: 12 of 100 rounds" in text_of(sections["runs"])
    assert "splits" not in sections and texts.NO_SPLITS in text_of(next(root.iter("footer")))
    assert "50.000" in text_of(sections["privacy"]), "epsilon at the end"
    expected = {"figure-1": 2, "figure-2": 2, "l1": 1, "pareto": 1, "drift": 1, "privacy": 1}
    assert {name: len(sections[name].findall("figure")) for name in expected} == expected
    write_run(tmp_path / "run", "digits/iid/fed_prox")
    poor = ET.fromstring(build(group_runs(find_runs([tmp_path])))[0])
    assert [section.get("id") for section in poor.iter("section")] == ["figure-1", "figure-2", "runs"], "none is empty"
    end = text_of(next(poor.iter("footer")))
    for text in (texts.NO_PAIR, texts.NO_HYPERPARAMETERS, texts.NO_PARETO, texts.NO_DRIFT, texts.NO_PRIVACY):
        assert text in end
    assert "--grid=l1=0,1e-2" in end and "--preset=mnist/iid/fed_prox" in end


def test_labels_are_escaped() -> None:
    table = page.table(["<a>", "b"], ["<i>heading", ["<x & y>", "1"]])
    assert rows_of(table) == [["<x & y>", "1"]] and "&lt;i&gt;heading" in table.content
    notes = page.Notes()
    assert (notes.marks(["a", "<b>"]), notes.marks(["<b>", "a"]), notes.marks([])) == ("1, 2", "1, 2", "")
    assert "&lt;b&gt;" in notes.html().content


def test_splits_are_drawn_once_or_their_command_is_named(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "some", "mnist/iid/fed_prox")
    write_run(tmp_path / "all", "mnist/iid/fed_prox/all", participants=10_000)
    groups = group_runs(find_runs([tmp_path]))
    asked = []

    def counts(group: Group) -> np.ndarray | str:
        asked.append(group)
        return np.arange(1, 21).reshape(4, 5) if len(asked) == 1 else texts.NO_DATA

    def splits() -> str:
        return text_of(join(next(s for s in Builder(groups, "c", counts).sections() if s.anchor == "splits").parts))

    text = splits()
    assert len(asked) == 1, "10 % and all clients have the same split"
    assert "210 examples of 5 classes at 4 clients" in text
    assert "python -m experiments.show_split --task=mnist --split=iid --num_clients=100" in text
    assert "the data are not at hand" in splits()


def test_curves_are_drawn_of_known_points_alone(tmp_path: pathlib.Path) -> None:
    folder = write_run(tmp_path / "run", "mnist/iid/fed_prox", rounds=4, participants=40)
    lines = (folder / "metrics.csv").read_text().splitlines()
    lines[2] = lines[2].rsplit(",", 1)[0] + ","  # not evaluated in round 2
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    groups = group_runs(find_runs([tmp_path]))
    drawn = figures.draw_accuracy(groups)(Look(False, "#000000", False))
    by_round, by_size = (np.asarray(ax.lines[0].get_xdata()) for ax in drawn.axes)
    assert by_round.tolist() == [1, 3, 4] and by_size.tolist() == [1.0, 3.0, 4.0]


# --- the command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "make_report.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_the_command(rich: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = run(str(rich), f"--output={tmp_path / 'out'}", f"--export={tmp_path / 'small'}", "--nosplits")
    assert done.returncode == 0, done.stderr
    assert "report.html: 6 runs" in done.stdout
    content = (tmp_path / "out" / "report.html").read_text()
    assert str(rich) not in content and str(ROOT) not in content, "nothing of the machine"
    assert f"python make_report.py PATH/TO/{rich.name} --output=PATH/TO/out --export=PATH/TO/small" in content
    assert len(list((tmp_path / "out").glob("*.png"))) == content.count("<img ")
    assert len(find_runs([tmp_path / "small"])) == 6


@pytest.mark.long
def test_the_command_draws_splits(tmp_path: pathlib.Path) -> None:
    """TensorFlow is imported for this alone, late, when Keras builds no model any more: labels are counted."""
    write_run(tmp_path / "runs" / "run", "digits/iid/fed_prox")
    done = run(str(tmp_path / "runs"), f"--output={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    content = (tmp_path / "out" / "report.html").read_text()
    assert len(list((tmp_path / "out").glob("split-digits*.png"))) == 1
    assert "1,400 examples of 10 classes at 20 clients" in content


def test_the_command_refuses_before_any_work(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, message in [
        ([str(tmp_path / "empty")], "No run found"),
        ([], "Name at least one folder of results"),
    ]:
        done = run(*arguments, f"--output={tmp_path / 'out'}")
        assert done.returncode != 0 and message in done.stderr + done.stdout
        assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed; `apt-get install chromium` gives one")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_the_page_without_scrolling_sideways(width: int, whole, tmp_path: pathlib.Path) -> None:
    assert CHROMIUM is not None
    (tmp_path / "report.html").write_text(whole[0])
    # A browser's window is at least 500 wide; a frame is not. It notes what it measured.
    (tmp_path / "frame.html").write_text(
        f'<iframe id="f" src="report.html" width="{width}" height="800"></iframe><script>'
        "onload = () => { const d = document.getElementById('f').contentDocument; const e = d.documentElement;"
        "const bad = [...d.images].filter(i => !i.complete || !i.naturalWidth || i.clientWidth > e.clientWidth);"
        "const found = [e.scrollWidth, e.clientWidth, d.images.length, bad.length];"
        "document.body.dataset.found = found.join(' '); }</script>"
    )
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search('data-found="([^"]*)"', done.stdout)
    assert found, done.stderr
    scroll, client, images, bad = map(int, found[1].split())
    assert scroll <= client <= width and images == whole[0].count("<img ") and bad == 0
