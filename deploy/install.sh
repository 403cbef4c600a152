#!/bin/sh
# In the image: `install.sh DIRECTORY LOCK` makes a virtual environment of a lock, from deploy/wheels if there are any.
# `install.sh DIRECTORY FILE.whl` puts our own wheel into it.
set -eu
directory=$1 what=$2

pip() {
    if python3 -m pip --version >/dev/null 2>&1; then
        python3 -m pip --disable-pip-version-check "$@"
    elif [ -d deploy/wheels/pip ]; then
        python3 deploy/wheels/pip --disable-pip-version-check "$@"
    else
        echo "the base image has no pip, and deploy/wheels neither: run 'make wheels' first" >&2
        return 1
    fi
}

[ -d "$directory" ] || python3 -m venv --without-pip "$directory"
case $what in
    *.whl) set -- --no-deps --no-index "$what" ;;
    *)
        # Packages that come as sources are built with what the build has.
        set -- --require-hashes --no-deps --no-build-isolation --requirement "deploy/locks/$what.lock"
        if ls deploy/wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links deploy/wheels "$@"; fi
        export PYTHONPATH="${BUILD_PACKAGES:-}"
        ;;
esac
pip --python "$directory/bin/python3" install --quiet --no-cache-dir --root-user-action ignore "$@"
