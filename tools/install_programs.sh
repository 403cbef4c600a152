#!/bin/sh
# What a target of the Makefile needs beside Python, from Debian's packages where this may install them:
# sh tools/install_programs.sh "make clients" java:default-jdk-headless kcat:kcat
set -eu

target=$1
shift
missing=""
for program in "$@"; do
    PATH="$PATH:/usr/sbin" command -v "${program%%:*}" >/dev/null || missing="$missing ${program##*:}"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    sudo -n true 2>/dev/null || as_root="no"
fi
if [ "$as_root" = "no" ] || ! command -v apt-get >/dev/null; then
    echo "$target needs$missing (names of Debian's packages); install them and run it again" >&2
    exit 1
fi

# A server among them is started by the test that needs it, not by the machine: neither now nor when the machine starts.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
if [ -d /run/systemd/system ]; then
    for package in $missing; do
        if systemctl is-enabled --quiet "$package" 2>/dev/null; then
            $as_root systemctl disable --quiet "$package"
        fi
    done
fi
