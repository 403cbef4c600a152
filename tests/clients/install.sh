#!/bin/sh
# What `make clients` needs beside Python: Java, Maven and kcat. From Debian's packages where this may install them.
set -eu

missing=""
for program in java:default-jdk-headless mvn:maven kcat:kcat; do
    command -v "${program%%:*}" >/dev/null || missing="$missing ${program##*:}"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    sudo -n true 2>/dev/null || as_root="no"
fi
if [ "$as_root" = "no" ] || ! command -v apt-get >/dev/null; then
    echo "make clients needs$missing (names of Debian's packages); install them and run it again" >&2
    exit 1
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
