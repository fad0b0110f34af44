"""What every command is asked in front of hostile data. A command that is not in this table fails the test: add a line."""

from dataclasses import dataclass

from tests.service.names.hostile import MARK


@dataclass(frozen=True)
class Run:
    """`words` are split at spaces, then what is in braces is filled in (`hostile.fill` has the names). `shows` is there for people;
    `json`: it is also run with `-o json`."""

    words: str
    code: int = 0
    shows: str = MARK
    json: bool = True
    logs: bool = False


NUMBERS_ALONE = "it takes and prints numbers, kinds of faults and sentences of our own"

COMMANDS: dict[str, tuple[Run, ...] | str] = {
    "train": (
        Run("{photos} --base {base} --recipe {lora_toml} --plan", 2, shows="prompt"),
        Run("{photos} --base {base} --recipe {unknown_toml} --plan", 2),
        Run("{refused} --base {base} --prompt p --resolution 64 --plan", 2),
        Run("{photos} --base {base} --prompt p --resolution 64 --plan", shows="their own for 1 photo"),
        Run("{photos} --base {base} --prompt p --resolution 64 --detach", shows="is queued"),
        Run("{nowhere} --base {typed} --prompt p", 2),
    ),
    "data convert": (
        Run("{refused} {lance} --processes 1"),
        Run("{refused} {bidi} --processes 1", json=False),
        Run("{nowhere} {nowhere}", 2),
        Run("{refused} {unnameable}", 2),
        Run("{refused} {folder}/other.lance --where {typed}", 2),
        Run("{refused} {folder}/other.lance --image-member {typed}", 2, shows="names files of webdataset tars"),
        Run("{refused} {folder}/other.lance --latents-of {typed}", 2, shows="has no columns of latents"),
    ),
    "scratch": (
        Run("{whole_toml} --data {lance} --base {base} --plan"),
        Run("{whole_toml} --data {bidi} --base {base} --plan", 2, shows="data.0.place"),
        Run("{scratch_toml}", 2, shows="phases.0.where"),
        Run("{nowhere}", 2),
        Run("{scratch_toml} --set {typed} --data {typed}", 2),
    ),
    "run": (
        Run("--no-code --detach -- true {typed}", 2, json=False, shows="command.1: is not valid Unicode"),
        Run("--no-code --detach --name {typed} -- true", 2, json=False, shows="name: is not valid Unicode"),
        Run("--no-code --detach -- true", 0, json=False, shows="is queued"),
        Run("--code {nowhere} -- true", 2),
        Run("--no-code --data {typed} -- true", 2),
        Run("--no-code --environment {typed} -- true", 2, shows="environment"),
        Run("--no-code --checkpoints ../{typed} -- true", 2, shows="checkpoints"),
        Run("--no-code --step {typed} -- true", 2, shows="step"),
        Run("--no-code --secret {typed} -- true", 2, shows="secrets"),
        Run("--no-code --requirements {nowhere} -- true", 2),
    ),
    "jobs ls": (Run(""),),
    "jobs show": (Run("{failed}"), Run("{running}"), Run("{queued}"), Run("{typed}", 2)),
    "jobs cancel": (Run("{unwanted}", shows="canceled by its owner"), Run("{typed}", 2)),
    "jobs pause": (Run("{paused}", shows="is paused"), Run("{typed}", 2)),
    "jobs resume": (Run("{paused}", shows="is queued"), Run("{typed}", 2)),
    "jobs save": (
        Run("{running}", shows="saves a checkpoint"),
        Run("{failed}", 2, shows="cannot be saved"),
        Run("{typed}", 2),
    ),
    "jobs finish": (Run("{failed}", 2, shows="cannot be finished early"), Run("{typed}", 2)),
    "jobs sample": (Run("{running}", 2, shows="prompt"), Run("{typed}", 2)),
    "jobs retry": (Run("{failed}", 2, shows="prompt"), Run("{typed}", 2)),
    "jobs extend": (
        Run("{failed} --steps 200 --yes", 2, shows="prompt"),
        Run("{running} --steps 200 --plan", 2, shows="prompt"),
        Run("{typed} --steps 200", 2),
    ),
    "jobs rm": (
        Run("{failed}", 2),
        Run("{unwanted} --yes", shows="is deleted", json=False),
        Run("{typed} --yes", 2),
    ),
    "jobs checkpoints": (
        Run("{failed}", shows="2.0 kB"),
        Run("{failed} --pin 1", shows="2.0 kB"),
        Run("{failed} --download 7 --to {folder}/got", 2, shows="keeps no checkpoint"),
        Run("{typed}", 2),
    ),
    "checkpoints ls": (Run("{failed}", shows="2.0 kB"), Run("{typed}", 2)),
    "checkpoints pin": (
        Run("{failed} 1", shows="2.0 kB"),
        Run("{failed} 7", 2, shows="keeps no checkpoint"),
        Run("{typed} 1", 2),
    ),
    "checkpoints unpin": (
        Run("{failed} 1", shows="2.0 kB"),
        Run("{failed} 7", 2, shows="keeps no checkpoint"),
        Run("{typed} 1", 2),
    ),
    "storage": (Run(""),),
    "logs": (Run("{failed}", logs=True), Run("{failed} -f", logs=True), Run("{typed}", 2), Run("{typed} -f", 2)),
    "metrics": (Run("{failed}"), Run("{typed}", 2)),
    "artifacts": (Run("{failed}"), Run("{failed} --to {folder}/got", 2), Run("{typed} --to {nowhere}", 2)),
    "samples": (Run("{failed}"), Run("{failed} --to {folder}/shown"), Run("{typed}", 2)),
    "merge": (Run("{nowhere} --base {nowhere} --to {nowhere}", 2),),
    "lora info": (Run("{nowhere}", 2),),
    "lora convert": (Run("{nowhere} --to {nowhere} --form kohya", 2),),
    "lora merge": (Run("{nowhere} --to {nowhere}", 2), Run("{typed} --to {nowhere} --base {nowhere}", 2)),
    "lora resize": (Run("{nowhere} --to {nowhere} --rank 4", 2),),
    "lora extract": (Run("{nowhere} {nowhere} --to {nowhere}", 2),),
    "bases add": (
        Run("{base} --name {typed}", 2, shows="name"),
        Run("{nowhere}", 2),
        Run("{typed} --prediction-type {typed}", 2),
        Run("{base} --name tiny --licence {typed}", 2, shows="licence"),
    ),
    "secrets set": (
        Run("HF_TOKEN --file {lora_toml}", shows="HF_TOKEN is set"),
        Run("{typed} --file {lora_toml}", 2),
        Run("HF_TOKEN --file {nowhere}", 2),
    ),
    "secrets ls": (Run(""),),
    "secrets rm": (Run("HF_TOKEN", 0, shows="is removed", json=False), Run("{typed}", 2)),
    "bases ls": (Run(""),),
    "bases show": (Run("plain"), Run("{typed}", 2)),
    "bases rm": (Run("plain", shows="the name plain is removed", json=False), Run("{typed}", 2)),
    "nodes ls": (Run(""),),
    "data encode": (Run("{nowhere} --base {typed} --resolution 32", 2),),
    "data inspect": (
        Run("{lance} --pictures {folder}/look.png"),
        Run("{bidi}"),
        Run("{nowhere}", 2),
        Run("{unnameable}", 2),
    ),
    "data ls": (Run("{folder}/sets"), Run("{nowhere}", 2)),
    "budget": (Run("", shows="no limit"), Run("--project {typed}", 2)),
    "keys add": (Run("{typed}", 2, shows="name"), Run("n --role {typed}", 2)),
    "keys ls": (Run(""),),
    "keys revoke": (Run("{key}", shows="is revoked"), Run("{typed}", 2)),
    "projects add": (Run("{typed}", 2),),
    "projects ls": (Run(""),),
    "projects set": (Run("{project} --share 2", shows="other"), Run("{typed} --share 2", 2)),
    "nodes show": (Run("{node}"), Run("{typed}", 2)),
    "nodes drain": (Run("{node}"), Run("{typed}", 2)),
    "nodes quarantine": (Run("{node}"), Run("{typed}", 2)),
    "nodes release": (Run("{node}"), Run("{typed}", 2)),
    "nodes logs": (Run("{node}", 2), Run("{typed}", 2)),
    "pools add": (
        Run("{typed} --driver local", 2, shows="name"),
        Run("ours --driver {typed}", 2, shows="driver"),
        Run("ours --driver shop --offer {typed}", 2, shows="offers"),
        Run("ours --driver shop --secret {typed}", 2, shows="secret"),
        Run("ours --driver shop --setting town={typed}", 2, shows="settings.town"),
    ),
    "pools ls": (Run(""),),
    "pools check": (Run("leaving", 2, shows="so no node would be rented"), Run("{typed}", 2)),
    "pools explain": (Run("{queued}", shows="the job asks for the pool"), Run("{running}"), Run("{typed}", 2)),
    "pools instances": (Run("rented", shows="rental"), Run("{typed}", 2)),
    "pools show": (Run("rented", shows="small"), Run("hostile"), Run("{typed}", 2)),
    "pools set": (
        Run("rented --nodes 0..2", shows="0..2"),
        Run("{typed} --nodes 1", 2),
        Run("rented --offer {typed}", 2, shows="offers"),
    ),
    "pools pause": (Run("rented", shows="paused"), Run("{typed}", 2)),
    "pools resume": (Run("rented", shows="active"), Run("{typed}", 2)),
    "pools sync": (Run("rented", shows="rented"), Run("{typed}", 2)),
    "pools rm": (Run("leaving", shows="leaving"), Run("{typed}", 2)),
    "pools drivers": (Run("", shows="shop"),),
    "join-tokens add": (Run("{typed}", 2, shows="name"), Run("n --pool {typed}", 2, shows="pool")),
    "join-tokens ls": (Run(""),),
    "join-tokens revoke": (Run("{join_token}", shows="is revoked"), Run("{typed}", 2)),
    "up": (Run("--nodes {typed} --home {folder}/home", 2), Run("--settings {unknown_gangline_toml}", 2)),
    "server": (Run("--settings {unknown_gangline_toml}", 2), Run("--host {typed} --home {folder}/home", 2)),
    "settings show": (
        Run("{gangline_toml}"),
        Run("{gangline_toml} --worker", shows="worker.slots"),
        Run("{unknown_gangline_toml}", 2),
        Run("{nowhere}", 2),
    ),
    "settings check": (Run("{gangline_toml}"), Run("{unknown_gangline_toml}", 2)),
    "worker": (
        Run("--token {typed} --home {folder}/worker", 2, shows="--token cannot be a secret"),
        Run("--server {typed} --home {nowhere}", 2),
    ),
    "recipes ls": "it prints files of our own",
    "recipes show": (Run("{nowhere}", 2), Run("{typed}", 2)),
    "examples ls": "it prints sentences of our own",
    "examples copy": (Run("{typed}", 2), Run("subject --to {folder}/copied", shows="copied to", json=False)),
    "docs": (Run("{typed}", 2),),
    "doctor": (Run("--server http://127.0.0.1:1 --home {nowhere}", 1),),
    "demo": (Run("--base {nowhere}", 2), Run("--base {base} --recipe {nowhere} --to {folder}/demo", 2)),
    "exec": (
        Run("--checkpoints {nowhere} --to {folder}/kept --results {folder}/runs -- {python} {script_py} {nowhere}"),
        Run("--checkpoints {nowhere} --to {folder}/typed --step {typed} -- true", 2),
        Run("--checkpoints {nowhere} --to {folder}/typed --data {typed} -- true", 2),
        Run("--checkpoints {nowhere} --to {folder}/typed --stop-signal {typed} -- true", 2),
        Run("--checkpoints {folder}/c --to {folder}/none -- {typed}", 2),
    ),
    "exec ls": (
        Run("{folder}/kept", shows="the command finished"),
        Run("{folder}/kept --checkpoints", shows="run"),
        Run("{nowhere}", 2),
        Run("{typed}", 2),
    ),
    "exec get": (Run("{folder}/kept {nowhere}/got"), Run("{nowhere} {folder}/got", 2), Run("{typed} {typed}", 2)),
    "exec rm": (
        Run("{nowhere} --all --yes", 2),
        Run("{typed} --run 1", 2),
        Run("{folder}/kept --run 9", 2, shows="no run 9"),
    ),
    "fetch": (Run("{folder}/kept {nowhere}/fetched"), Run("{nowhere} {folder}/fetched", 2), Run("{typed} {typed}", 2)),
    "verify-resume": (
        Run("--spec {spec_json}", 2),
        Run("--spec {nowhere}", 2),
        Run("-- {python} {failing_py}", 2),
        Run("-- {typed}", 2),
    ),
    "estimate": (
        Run("{outline_toml}"),
        Run("{nowhere}", 2),
        Run("{outline_toml} --figure {nowhere}.svg"),
        Run("--phase {typed}", 2),
    ),
    "sim run": (
        Run("{scenario_toml} --svg {folder}/run.svg"),
        Run("{typed}", 2),
        Run("{scenario_toml} --set {typed}", 2),
    ),
    "sim soak": NUMBERS_ALONE,
    "sim map": "it prints scenarios, as `sim run` does, and their offers",
    "sim ls": "it prints the titles of our own scenarios",
}
