#!/bin/sh
# debian-tree.sh SUITE DIR [OPTION]...: debootstraps a minimal Debian into DIR, which reaches its packages the way this machine
# does (mirror, proxy and the like are taken from apt's own settings). Needs root and debootstrap.
set -eu
suite=$1 dir=$2
shift 2
# shellcheck disable=SC2016 # apt-get fills it in
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/*$' || true)
# shellcheck disable=SC2086 # no mirror, no argument: debootstrap knows Debian's own
debootstrap --variant=minbase "$@" "$suite" "$dir" ${mirror:-}
apt-config dump | grep -E '^Acquire::(Check-|http|https|Retries)' >"$dir/etc/apt/apt.conf.d/90host" || true
grep -qs localhost "$dir/etc/hosts" || echo "127.0.0.1 localhost" >>"$dir/etc/hosts"
