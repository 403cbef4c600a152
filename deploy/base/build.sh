#!/bin/sh
#     deploy/base/build.sh [IMAGE [PACKAGE...]]
#
# Makes an image, `klamm-base` unless told otherwise, of Debian's packages, from the mirror that apt is configured with: the
# air-gapped way to have something for deploy/Dockerfile's BASE. Needs root, docker and mmdebstrap (or debootstrap, which
# takes longer).
set -eu
name=${1:-klamm-base}
[ $# -gt 1 ] && shift || set -- python3 libstdc++6
packages=$(echo "$*" | tr ' ' ',')
suite=bookworm
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" "Created-By: Packages" | head -n 1)}
keep() { tar --create --file - --directory "$1" --exclude './usr/share/doc' --exclude './usr/share/man' \
    --exclude './usr/share/locale' --exclude './var/cache/apt/*' --exclude './var/lib/apt/lists/*' --exclude './dev/*' .; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v mmdebstrap >/dev/null; then
    mmdebstrap --quiet --variant=essential --include="$packages" --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$work/base.tar" "$mirror"
else
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" "$mirror" >"$work/log" || { cat "$work/log" >&2; exit 1; }
    keep "$work/root" >"$work/base.tar"
fi
docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$work/base.tar" "$name"
