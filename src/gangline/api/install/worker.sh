#!/bin/sh
# Install a worker of Gangline from the server that served this script, and start it:
#
#     curl -fsSL http://SERVER/worker.sh | GANGLINE_TOKEN=gl_join_… sh -s -- [OPTIONS OF gangline worker]
#
# It needs Python 3.11 or newer; a PyTorch that is installed is used as it is. What it installs lies in a folder of its own, below
# GANGLINE_INSTALL (default: ~/.local/share/gangline/installed), and is used again by the next run.
set -eu

server='@SERVER@'
wheel='@WHEEL@'
sha256='@SHA256@'

fail() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 2
}

say() {
    printf '%s\n' "$1" >&2
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# torch_of PYTHON: print the version of its PyTorch; nothing if it has none, or one that is too old.
torch_of() {
    "$1" -c '
import torch
if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6):
    print(torch.__version__)' 2>/dev/null || true
}

# Set `python`: the first with a PyTorch, else the first that is new enough, else nothing. `torch` is the version of its PyTorch.
find_python() {
    python= torch=
    for name in python3 python python3.14 python3.13 python3.12 python3.11; do
        path=$(command -v "$name") && is_new_enough "$path" || continue
        python=${python:-$path}
        torch=$(torch_of "$path")
        if [ -n "$torch" ]; then
            python=$path
            return
        fi
    done
}

# download URL FILE
download() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 3 -o "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -O "$2" "$1"
    else
        "$python" -c '
import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as answer, open(sys.argv[2], "wb") as file:
    shutil.copyfileobj(answer, file)' "$1" "$2"
    fi || fail "$1 cannot be downloaded" "check that this machine reaches $server"
}

sha256_of() {
    "$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
}

# make_environment FOLDER: beside the packages of a Python that has PyTorch, else alone.
make_environment() {
    set -- "$1" ${torch:+--system-site-packages} ${pip:+--without-pip}
    "$python" -m venv "$@" >&2 || fail "$python cannot make a virtual environment" "install python3-venv"
    if [ -n "$torch" ]; then
        # The packages of a Python that is itself in a virtual environment are no system packages.
        "$python" -c '
import sys
if sys.prefix != sys.base_prefix:
    print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' >"$1/beside"
        mv "$1/beside" "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
    fi
}

# keep_torch FILE: of constraints, leave a PyTorch that is here as it is, with the libraries that belong to it.
keep_torch() {
    [ -z "$torch" ] || "$python" -c '
import re, sys
theirs = re.compile(r"(torch|torchvision|torchaudio|triton|nvidia-.*|cuda-.*)==")
lines = [line for line in open(sys.argv[1]) if not theirs.match(line)]
open(sys.argv[1], "w").writelines([*lines, f"torch=={sys.argv[2]}\n"])' "$1" "$torch"
}

# Install everything into `folder`. A pip that is here installs into it: one of its own would bring its own setuptools, too.
install() {
    find_python
    [ -n "$python" ] || fail "there is no Python 3.11 or newer here" "install python3 and python3-venv"
    pip=$("$python" -m pip --version 2>/dev/null) || pip=
    rm -rf "$folder"
    mkdir -p "$folder" 2>/dev/null || fail "$folder cannot be created" "set GANGLINE_INSTALL to a folder that may be written"
    say "installing a worker of $server in $folder, with $python"
    download "$server/wheels/$wheel" "$folder/$wheel"
    [ "$(sha256_of "$folder/$wheel")" = "$sha256" ] ||
        fail "$wheel came with another SHA-256 than this script names" "download the script again: the server may have changed"
    download "$server/worker/constraints.txt" "$folder/constraints.txt"
    keep_torch "$folder/constraints.txt"
    make_environment "$folder/venv"
    set -- install --quiet --disable-pip-version-check -c "$folder/constraints.txt" "$folder/$wheel[worker,train,captions]"
    if [ -n "$pip" ]; then
        "$python" -m pip --python "$folder/venv/bin/python" "$@" >&2
    else
        "$folder/venv/bin/python" -m pip "$@" >&2
    fi ||
        fail "pip could not install $wheel" "its last lines above say why"
    rm "$folder/$wheel"
    touch "$folder/ready"
}

main() {
    [ -n "${GANGLINE_TOKEN:-}" ] || case " $* " in
    *" --token"*) ;;
    *) fail "a worker needs a join token" "set GANGLINE_TOKEN to one: \`gangline join-tokens add\` makes it" ;;
    esac
    root=${GANGLINE_INSTALL:-${HOME:-/root}/.local/share/gangline/installed}
    folder=$root/$sha256
    mkdir -p "$root" 2>/dev/null || fail "$root cannot be created" "set GANGLINE_INSTALL to a folder that may be written"
    exec 9>"$root/lock"
    ! command -v flock >/dev/null 2>&1 || flock 9 # of two that start at once one installs
    [ -e "$folder/ready" ] || install
    exec 9>&-
    export GANGLINE_SERVER="$server"
    exec "$folder/venv/bin/gangline" worker "$@" </dev/null
}

main "$@" # the last line: of a script that was cut off nothing runs
