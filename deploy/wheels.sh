#!/bin/sh
# Fills deploy/wheels with what the image installs, each file checked against its hash in deploy/locks: for machines
# that build it without a package index. `deploy/wheels.sh server build spark` for the Spark image too. Wheels are for
# the Python that runs this: let it be of the same minor version as the image's (3.11).
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- server build
download() {
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation \
        --dest deploy/wheels --requirement "deploy/locks/$1.lock" $2
}
for lock in "$@"; do
    # Wheels that are there already need no index.
    download "$lock" "--no-index --find-links deploy/wheels" 2>/dev/null || download "$lock" ""
done
# A base made of Debian's packages has no pip. It runs from its folder.
rm -rf deploy/wheels/pip
cp -R "$("$PYTHON" -c 'import os, pip; print(os.path.dirname(pip.__file__))')" deploy/wheels/pip
du -sh deploy/wheels
