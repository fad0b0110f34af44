"""The settings of a cluster and of a pool on it refuse what would break the driver's promises."""

import subprocess
from typing import Any

import pytest

from gangline.adapters.pools.slurm.script import batch_script
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings
from gangline.core.parsing import InvalidSpec, parse_as


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "partition: is missing"),
        ({"partition": ""}, "partition: "),
        ({"partition": "gpu,"}, "partition: must be names of letters"),
        ({"partition": "gpu --wrap=x"}, "partition: must be names of letters"),
        ({"partition": "-p"}, "partition: must be names of letters"),
        ({"partition": "gpu", "gpus": -1}, "gpus: must be 0 or more"),
        ({"partition": "gpu", "gpus": 1.5}, "gpus: must be a whole number"),
        ({"partition": "gpu", "gpu_type": "a100:4"}, "gpu_type: must be a name"),
        ({"partition": "gpu", "price_usd_per_hour": -1.0}, "price_usd_per_hour: must be 0 or more"),
        ({"partition": "gpu", "trust": 10}, "trust: must be 9 or less"),
        ({"partition": "gpu", "time_limit_minutes": 4}, "time_limit_minutes: must be 5 or more"),
        ({"partition": "gpu", "colour": "red"}, "colour: is not a known field"),
    ],
)
def test_a_wrong_setting_of_a_pool_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        parse_as(SlurmSettings, settings)
    assert said in error.value.message


def test_partitions_are_names_between_commas_each_once() -> None:
    assert parse_as(SlurmSettings, {"partition": "gpu,low.prio,gpu"}).partitions == ("gpu", "low.prio")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--account=lab -t 5", "must be long options"),
        ("--account lab", "must be long options"),
        ("--comment=mine", "must not have --comment"),
        ("--comm=mine", "must not have --comm"),
        ("--output=/dev/null", "must not have --output"),
        ("--export=NONE", "must not have --export"),
        ("--requeue", "must not have --requeue"),
        ("--wrap=true", "must not have --wrap"),
        ("--account='lab", "cannot be split into words"),
        ("--", "must be long options"),
    ],
)
def test_options_that_gangline_sets_itself_are_refused(options: str, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        parse_as(SlurmCluster, {"options": options})


def test_other_options_are_taken() -> None:
    options = "--account=lab --qos=low --mem=48G --cpus-per-task=8 --constraint='a|b' --gpus-per-node=1 --exclusive"
    assert parse_as(SlurmCluster, {"options": options}).options == options


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize(
    "cluster",
    [SlurmCluster(), SlurmCluster(scratch="/local/$USER", prepare="module load cuda", worker="/opt/gangline worker")],
)
def test_every_batch_script_is_bash(cluster: SlurmCluster, gpus: int) -> None:
    script = batch_script(cluster, gpus)
    checked = subprocess.run(["/bin/bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert ("--slots 2" in script) == (gpus == 2) and "--slots 0" not in script
