"""The batch script of a node: it takes a free folder of the machine and becomes the worker, which gets Slurm's signals."""

from gangline.adapters.pools.slurm.settings import SlurmCluster

HOMES_MAX = 64
SCRATCH = '"${TMPDIR:-/tmp}/gangline-$(id -u)"'

BEGINS = """#!/bin/bash -l
# A node of Gangline: this job runs a worker. The server and the token are in its environment.
set -eu
umask 077
scratch={scratch}
mkdir -p "$scratch"
if ! [ -O "$scratch" ]; then
    echo "the folder $scratch belongs to another user; choose another scratch folder" >&2
    exit 1
fi
"""
# The lock is held by the worker that this shell becomes, for as long as it lives: so a home is used by one worker at a time, and the
# next one there finds its machine id and its cache.
HOME = f"""for number in $(seq {HOMES_MAX}); do
    exec 9>"$scratch/$number.lock"
    flock -n 9 && break
    if [ "$number" = {HOMES_MAX} ]; then
        echo "all {HOMES_MAX} homes in $scratch are in use" >&2
        exit 1
    fi
done
export GANGLINE_HOME="$scratch/$number"
mkdir -p "$GANGLINE_HOME"
"""
FETCH = """if ! command -v gangline >/dev/null; then
    if command -v curl >/dev/null; then
        curl -fsSL --retry 3 -o "$GANGLINE_HOME/worker.sh" "$GANGLINE_SERVER/worker.sh"
    else
        python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \\
            "$GANGLINE_SERVER/worker.sh" "$GANGLINE_HOME/worker.sh"
    fi
    exec sh "$GANGLINE_HOME/worker.sh"{slots}
fi
exec gangline worker{slots}
"""


def batch_script(cluster: SlurmCluster, gpus: int) -> str:
    """Return the script of a job with this many GPUs. It holds no secret: Slurm shows scripts to administrators."""
    slots = f" --slots {gpus}" if gpus else ""
    begins = BEGINS.format(scratch=f'"{cluster.scratch}"' if cluster.scratch else SCRATCH)
    worker = f"exec {cluster.worker}{slots}\n" if cluster.worker else FETCH.format(slots=slots)
    return begins + HOME + (f"set +eu\n{cluster.prepare}\nset -eu\n" if cluster.prepare else "") + worker
