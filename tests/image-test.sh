#!/bin/bash
# The container image.
#   image-test.sh build   with the engine that is there (docker, podman or buildah)
#   image-test.sh test    builds it with no engine running and no image registry, and tries what came out: one call
#                         is forwarded, one is dropped, and after a restart the fence is still there.
# `test` needs root. It makes Debian's base image itself with debootstrap and keeps it for a week in
# $FENCEGATE_CACHE (else $XDG_CACHE_HOME/fencegate-ci, else /var/cache/fencegate-ci). The gateway runs as the image
# says (user, entry point, command, health check) on a read-only root without capabilities, and both it and the
# partner live in a network namespace of their own, so that docker/fencegate.json is tried as it stands.
set -euo pipefail
cd "$(dirname "$0")/.."
SUITE=trixie
BASE=docker.io/library/debian:$SUITE-slim
IMAGE=localhost/fencegate
work=${work:-} # a temporary folder, made by `test` and handed down to `inside`

die() {
    printf '  FAIL   image: %s\n' "$*" >&2
    exit 1
}
step() {
    printf '  IMAGE  %s\n' "$*"
}

build() {
    local engine
    for engine in docker podman buildah; do
        if command -v "$engine" >/dev/null; then
            exec "$engine" build -f docker/Dockerfile -t fencegate .
        fi
    done
    die "no docker, podman or buildah here"
}

install_needs() {
    local missing=() package
    for package in buildah debootstrap iproute2 curl python3 util-linux; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    step "apt-get install ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=300 update
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# make_base TAR: Debian's minimal system, with this machine's way to reach its mirror.
make_base() {
    local tree=$work/base
    step "debootstrap $SUITE"
    tests/debian-tree.sh "$SUITE" "$tree" >"$work/debootstrap.log" 2>&1 || die "debootstrap: $(tail -n 3 "$work/debootstrap.log")"
    rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,man,locale}/*
    mkdir -p "$(dirname "$1")"
    tar -C "$tree" -cf "$1.part" --one-file-system .
    mv "$1.part" "$1"
    rm -rf "$tree"
}

import_base() {
    local cache=${FENCEGATE_CACHE:-${XDG_CACHE_HOME:-/var/cache}/fencegate-ci} container
    local tar=$cache/$SUITE.tar
    [ -n "$(find "$tar" -mtime -7 2>/dev/null)" ] || make_base "$tar"
    container=$(buildah from scratch)
    base_root=$(buildah mount "$container")
    tar -C "$base_root" -xf "$tar"
    base_size=$(du -sm "$base_root" | cut -f1)
    buildah config --cmd bash "$container"
    buildah commit -q --rm "$container" "$BASE" >/dev/null
}

bake() {
    step "buildah bud -f docker/Dockerfile"
    # Docker's format: the OCI one has no health check.
    buildah bud --format docker --pull-never -f docker/Dockerfile -t "$IMAGE" . >"$work/build.log" 2>&1 </dev/null \
        || die "the build failed:"$'\n'"$(tail -n 30 "$work/build.log")"
    image=$(buildah from --pull-never "$IMAGE")
    root=$(buildah mount "$image")
    step "built: $(du -sm "$root" | cut -f1) MiB, $base_size of them Debian's base"
}

# of_image FIELD: a value of the image's configuration, lists one element a line.
of_image() {
    buildah inspect --type image "$IMAGE" | python3 -c 'import json, sys
value = json.load(sys.stdin)["Docker"]["config"]
for name in sys.argv[1].split("."):
    value = value[name]
print(*(value if isinstance(value, (list, dict)) else [value]), sep="\n")' "$1"
}

# The part that runs in namespaces of its own (see trial): $1 is the image's root, $2 the store's volume.
inside() {
    local root=$1 store=$2
    ip link set lo up
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    touch "$root/etc/fencegate/fencegate.json" "$root/etc/hosts"
    mount --bind docker/fencegate.json "$root/etc/fencegate/fencegate.json"
    mount --bind "$work/hosts" "$root/etc/hosts"
    mount --bind "$store" "$root/var/lib/fencegate"
    mount -o remount,bind,ro "$root"
    touch "$root/probe" 2>/dev/null && die "the root file system is writable"

    mkfifo "$work/partner.ready"
    python3 -B docker/partner.py --port 9090 >"$work/partner.ready" 2>"$work/partner.out" &
    read -r _ <"$work/partner.ready" || die "the stand-in partner did not start: $(cat "$work/partner.out")"
    start
    wait_for health || die "the image's health check does not pass"
    call 41 200 sent
    call 42 200 sent
    call 41 412 not-sent
    finish
    start
    wait_for health || die "the image's health check does not pass after the restart"
    call 41 412 not-sent
    call 43 200 sent
    finish
    health && die "the health check passes without a gateway"
    [ "$(curl -sS http://127.0.0.1:9090/arrivals)" = '{"arrivals": 3}' ] || die "the partner saw something else: $(cat "$work/partner.out")"
    step "forwarded, dropped, restarted, and the fence was still there"
}

# in_image COMMAND...: as the image's user, without any capability, in the image's file system.
in_image() {
    local user
    user=$(cat "$work/user")
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs \
        --bounding-set=-all --inh-caps=-all "$@"
}
start() {
    mapfile -t command <"$work/command"
    (in_image "${command[@]}") >"$work/gateway.out" 2>"$work/gateway.log" &
    gateway=$!
}
finish() {
    local status=0
    kill "$gateway"
    wait "$gateway" || status=$?
    [ "$status" -eq 0 ] || die "the gateway ended with status $status on SIGTERM"
}
health() {
    mapfile -t check <"$work/health"
    (in_image "${check[@]}") >/dev/null 2>&1
}
# wait_for COMMAND: until it succeeds, 20 seconds at most, and no longer than the gateway lives.
wait_for() {
    local try
    for ((try = 0; try < 200; try++)); do
        "$@" && return 0
        kill -0 "$gateway" 2>/dev/null || die "the gateway ended: $(tail -n 5 "$work/gateway.log")"
        sleep 0.1
    done
    return 1
}
# call TOKEN STATUS EFFECT
call() {
    local got
    got=$(curl -sS -m 30 -o "$work/body" -D "$work/headers" -w '%{http_code}' -H "Workflow-Key: order-17" \
        -H "Fencing-Token: $1" -d amount=4200 http://127.0.0.1:8080/pay/v1/charges)
    got+=" $(tr -d '\r' <"$work/headers" | sed -n 's/^fencegate-effect: //Ip')"
    [ "$got" = "$2 $3" ] || die "token $1: expected $2 $3, got $got: $(cat "$work/body")"
    step "token $1: $got"
}

trial() {
    local store=$work/store
    of_image User >"$work/user"
    { of_image Entrypoint && of_image Cmd; } >"$work/command"
    of_image Healthcheck.Test | tail -n +2 >"$work/health"
    [ "$(of_image Volumes)" = /var/lib/fencegate ] || die "the image declares no volume for the store"
    grep -qE '^[1-9][0-9]*:[1-9][0-9]*$' "$work/user" || die "the image's user is no plain number above 0"
    printf '127.0.0.1 localhost partner\n' >"$work/hosts"
    # A new volume takes owner and mode from the folder in the image.
    cp -a "$root/var/lib/fencegate" "$store"
    work=$work unshare --mount --propagation private --net --pid --fork --kill-child "$0" inside "$root" "$store" </dev/null
}

tidy() {
    buildah rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}

case ${1:-} in
    build) build ;;
    inside) inside "$2" "$3" ;;
    test)
        [ "$(id -u)" = 0 ] || die "image-test needs root"
        install_needs
        work=$(mktemp -d "${TMPDIR:-/var/tmp}/fencegate-image.XXXXXX")
        trap tidy EXIT
        # Its own place for images: nothing here touches those of the machine.
        export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF=$work/storage.conf
        printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/images"\nrunroot = "%s/run"\n' "$work" "$work" >"$work/storage.conf"
        import_base
        bake
        trial
        echo "make image-test: passed"
        ;;
    *) die "usage: image-test.sh build|test" ;;
esac
