#!/bin/sh
# Runs every check of `make lint`, also after one has failed. TEST_STORY is a file to which it appends the end of
# what each failed check printed.
set -u
bin=$1
failed=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

check() {
    "$@" >"$output" 2>&1 && status=0 || status=$?
    cat "$output"
    [ "$status" = 0 ] && return
    failed=1
    [ -z "${TEST_STORY:-}" ] || { echo "LINT: $*"; tail -n 15 "$output"; } >>"$TEST_STORY"
}

check "$bin/ruff" check .
check "$bin/ruff" format --check .
check "$bin/mypy"
check "$bin/lint-imports"
check "$bin/python" tools/set_order.py
check "$bin/python" tools/process_calls.py
check "$bin/python" tools/plain_english.py
check "$bin/typos"
exit $failed
