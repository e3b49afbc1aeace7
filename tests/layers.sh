#!/bin/sh
# The layer rule: gateway -> store, gateway -> config, nothing back; and each library's header in one place, so
# that another engine or HTTP library can take its place there.
# shellcheck disable=SC2046 # file names here have no blanks
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0

# refuse WHY PATTERN FILE...: no file may have an include line that matches.
refuse() {
    why=$1 pattern=$2
    shift 2
    found=$(grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$pattern" /dev/null "$@") || return 0
    printf '%s\n  ^ %s\n' "$found" "$why"
    bad=1
}
# others GLOB...: all sources but those that match.
others() {
    find gateway config store -name '*.[ch]' | sort | while read -r file; do
        for glob in "$@"; do
            # shellcheck disable=SC2254
            case $file in $glob) continue 2 ;; esac
        done
        echo "$file"
    done
}

refuse "store/ includes neither gateway/ nor config/" '(\.\./)*(gateway|config)/' store/*.[ch]
refuse "config/ includes neither gateway/ nor store/" '(\.\./)*(gateway|store)/' config/*.[ch]
refuse "lmdb.h belongs to store/lmdb*.c" 'lmdb\.h' $(others 'store/lmdb*.[ch]')
refuse "microhttpd.h belongs to gateway/admin*.c" 'microhttpd\.h' $(others 'gateway/admin*.[ch]')
refuse "curl.h belongs to gateway/upstream*.c and gateway/command_admin_client.c" 'curl/' \
    $(others 'gateway/upstream*.[ch]' gateway/command_admin_client.c gateway/main.c)
refuse "openssl/ belongs to gateway/webhook_signature.c, gateway/upstream_tls.c and config/tls_files.c" 'openssl/' \
    $(others gateway/webhook_signature.c gateway/upstream_tls.c config/tls_files.c)
refuse "zlib.h belongs to store/journal.c" 'zlib\.h' $(others store/journal.c)
refuse "outside store/ only store/store.h is known" 'store/(apply|buffer|change|journal|lmdb|overlay|record|tail|writer)' $(others 'store/*')
[ "$bad" -eq 0 ] && echo "  LINT   layers"
exit "$bad"
