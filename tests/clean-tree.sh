#!/bin/bash
# clean-tree.sh SUITE [--work-tree]: proves the README's promise on a fresh Debian (bookworm or trixie): a minimal
# system with nothing but make on it gets a clean clone of the last commit (--work-tree: the files as they lie
# here), then `make demo` and `make test`. Needs root. KEEP=1 leaves the system in place for a look.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:?which suite: bookworm or trixie}
from=${2:-commit}

# Mounts and processes live in namespaces of their own: nothing is left behind, however this ends.
if [ -z "${CLEAN_TREE_INSIDE:-}" ]; then
    command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qq install -y debootstrap >/dev/null
    tree=$(mktemp -d "${TMPDIR:-/var/tmp}/fencegate-$suite.XXXXXX")
    trap '[ -n "${KEEP:-}" ] && echo "kept: $tree" || rm -rf --one-file-system "$tree"' EXIT
    chmod 755 "$tree"
    CLEAN_TREE_INSIDE=$tree unshare --mount --propagation private --pid --fork --kill-child "$0" "$suite" "$from"
    exit
fi
tree=$CLEAN_TREE_INSIDE

echo "== debootstrap $suite"
tests/debian-tree.sh "$suite" "$tree" >"$tree.log" 2>&1 || { tail -n 20 "$tree.log"; exit 1; }
rm -f "$tree.log"
if [ "$from" = --work-tree ]; then
    mkdir "$tree/src"
    git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$tree/src" -xf -
else
    git clone -q --no-hardlinks . "$tree/src"
fi
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"

# inside COMMAND...: as a person would on that system, with nothing of this one's environment.
inside() {
    echo "== $suite: $*"
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        chroot "$tree" sh -c 'cd /src && exec "$@"' sh "$@" </dev/null
}
inside env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends make >/dev/null 2>&1'
inside make demo
inside make test
if git -C "$tree/src" rev-parse --git-dir >/dev/null 2>&1; then
    left=$(git -c safe.directory="$tree/src" -C "$tree/src" status --porcelain)
    [ -z "$left" ] || { printf 'files left beside the sources:\n%s\n' "$left"; exit 1; }
fi
echo "== $suite: make demo and make test passed"
