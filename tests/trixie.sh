#!/bin/bash
# trixie.sh [GOAL]...: `make lint`, then `make unit`, or other goals, with the tools of Debian 13 (gcc 14, clang 19, cppcheck 2.17), whatever
# this machine has: in a small tree of it, with the sources bound into it read-only. The tree (0.9 GB), with what was built
# there, stays in $FENCEGATE_TRIXIE (build/trixie) for the next time. It is made when it is missing, in about a minute; where
# no mirror answers, the checks are skipped, which is printed and is no failure. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=${FENCEGATE_TRIXIE:-$PWD/build/trixie}
[ $# -gt 0 ] || set -- lint unit

# Mounts and processes live in namespaces of their own: nothing is left behind, however this ends.
if [ -z "${TRIXIE_INSIDE:-}" ]; then
    TRIXIE_INSIDE=1 exec unshare --mount --propagation private --pid --fork --kill-child "$0" "$@"
fi

if [ ! -d "$tree" ]; then
    echo "  TREE   trixie"
    command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qq install -y debootstrap >/dev/null
    mkdir -p "$(dirname "$tree")"
    part=$(mktemp -d "$tree.XXXXXX")
    chmod 755 "$part"
    if ! tests/debian-tree.sh trixie "$part" --include=make >"$part.log" 2>&1; then
        tail -n 5 "$part.log"
        echo "  TREE   trixie: skipped, it could not be made"
        rm -rf --one-file-system "$part" "$part.log"
        exit 0
    fi
    rm "$part.log"
    mkdir "$part/src" "$part/build"
    mv "$part" "$tree"
fi
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount --bind . "$tree/src"
mount -o remount,bind,ro "$tree/src"
for goal in "$@"; do
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$tree" \
        sh -c 'cd /src && exec make "$@"' sh --no-print-directory -j"$(nproc)" "$goal" BUILD=/build WERROR=-Werror </dev/null
done
