#!/bin/sh
# The README's story, played against a stand-in partner: token 41 goes through, 42 goes through, 41 comes back
# and is dropped. `demo.sh run` then keeps serving until Ctrl-C, `demo.sh demo` ends by itself. Any outcome
# that differs from the story ends it with status 1. FENCEGATE_PORT and FENCEGATE_ADMIN_PORT name other ports than
# 8080 and 8081 (0: free ones). Everything lives in a temporary folder, removed at the end.
set -eu
cd "$(dirname "$0")/.."
mode=${1:-demo}
gateway=${FENCEGATE_BIN:-build/fencegate}
dir=$(mktemp -d "${TMPDIR:-/tmp}/fencegate-demo.XXXXXX")
partner_pid='' gateway_pid=''

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') red=$(printf '\033[31m') plain=$(printf '\033[0m')
else
    bold='' red='' plain=''
fi

# shellcheck disable=SC2317 # reached through the trap
# stop PID: ends a process of ours and waits until it is gone.
stop() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
# shellcheck disable=SC2317
tidy() {
    trap '' INT TERM HUP # a second Ctrl-C would end this shell and leave what it started
    stop "$gateway_pid"
    stop "$partner_pid"
    rm -rf "$dir"
}
trap tidy EXIT
# An interrupted demo has failed; a `run` that has come to serving is over as it should be (see the end).
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
    printf '%s\n' "${red}The demo failed: $*${plain}" >&2
    if [ -s "$dir/gateway.log" ]; then
        echo "The gateway's log:" >&2
        tail -n 20 "$dir/gateway.log" >&2
    fi
    exit 1
}
say() {
    printf '\n%s\n' "$bold$*$plain"
}

# port_or_free PORT: PORT if nothing listens there, else 0, which lets the gateway pick one.
port_or_free() {
    python3 -c 'import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
    print(sys.argv[1])
except OSError:
    print(0)' "$1"
}

start_partner() {
    mkfifo "$dir/partner.ready"
    python3 -B docker/partner.py --port 0 >"$dir/partner.ready" &
    partner_pid=$!
    read -r _ _ partner_url <"$dir/partner.ready" || fail "the stand-in partner did not start"
}

start_gateway() {
    cat >"$dir/fencegate.json" <<END
{
  "listen": { "address": "127.0.0.1", "port": $(port_or_free "${FENCEGATE_PORT:-8080}") },
  "admin":  { "address": "127.0.0.1", "port": $(port_or_free "${FENCEGATE_ADMIN_PORT:-8081}") },
  "store":  { "path": "store" },
  "routes": [ { "name": "payments", "path": "/pay", "upstream": "$partner_url" } ]
}
END
    mkfifo "$dir/gateway.ready"
    "$gateway" serve -c "$dir/fencegate.json" >"$dir/gateway.ready" 2>"$dir/gateway.log" &
    gateway_pid=$!
    # fencegate ready proxy=127.0.0.1:8080 admin=127.0.0.1:8081
    read -r _ ready proxy admin <"$dir/gateway.ready" || fail "the gateway did not start"
    [ "$ready" = ready ] || fail "the gateway's first line was not its ready line"
    proxy=http://${proxy#proxy=} admin=http://${admin#admin=}
}

# call TOKEN STATUS EFFECT: one payment for order-17 under TOKEN, whose answer has to be STATUS and EFFECT.
call() {
    printf '  $ curl -H "Workflow-Key: order-17" -H "Fencing-Token: %s" -d amount=4200 %s/pay/v1/charges\n' "$1" "$proxy"
    status=$(curl -sS --noproxy '*' -m 30 -o "$dir/body" -D "$dir/headers" -w '%{http_code}' -H "Workflow-Key: order-17" \
        -H "Fencing-Token: $1" -d amount=4200 "$proxy/pay/v1/charges") || fail "no answer from the gateway"
    effect=$(tr -d '\r' <"$dir/headers" | sed -n 's/^[Ff]encegate-[Ee]ffect: //p')
    printf '  %s, Fencegate-Effect: %s\n' "$status" "$effect"
    detail=$(sed -n 's/.*"detail": *"\([^"]*\)".*/\1/p' "$dir/body")
    [ -z "$detail" ] || printf '  %s\n' "$detail"
    [ "$status/$effect" = "$2/$3" ] || fail "token $1 should have got $2 and $3: $(cat "$dir/body")"
}

start_partner
start_gateway
say "Two workers, one payment. The lock service gave worker A the lease with fencing token 41."
call 41 200 sent
say "Worker A pauses, its lease runs out, and worker B gets token 42."
call 42 200 sent
say "Worker A wakes up, believes that it still holds the lease, and sends again. The partner must not see it."
call 41 412 not-sent

say "The drop is on record:"
printf '  $ fencegate audit --store %s --key order-17 --reason stale-token\n' "$dir/store"
"$gateway" audit --store "$dir/store" --key order-17 --reason stale-token >"$dir/audit" || fail "no audit record"
sed 's/^/  /' "$dir/audit"
grep -q stale-token "$dir/audit" || fail "the drop is not in the audit"
arrivals=$(curl -sS --noproxy '*' -m 30 "$partner_url/arrivals")
[ "$arrivals" = '{"arrivals": 2}' ] || fail "the partner should have seen two payments: $arrivals"
say "Two payments reached the partner, the stale one did not."

if [ "$mode" = demo ]; then
    kill "$gateway_pid"
    if wait "$gateway_pid"; then status=0; else status=$?; fi
    gateway_pid=''
    [ "$status" -eq 0 ] || fail "the gateway ended with status $status on SIGTERM"
    exit 0
fi

cat <<END

Proxy  $proxy/pay/...  (to the stand-in partner at $partner_url)
Admin  $admin
Page   $admin/  (it asks for the token in $dir/store/admin.token)

Try:
  curl -i -H "Workflow-Key: order-17" -H "Fencing-Token: 43" -d amount=4200 $proxy/pay/v1/charges
  curl -i -d amount=4200 $proxy/pay/v1/charges
  curl $admin/readyz
  curl $admin/metrics
  curl -H "Authorization: Bearer \$(cat $dir/store/admin.token)" $admin/v1/fences/default/order-17
  curl -H "Authorization: Bearer \$(cat $dir/store/admin.token)" "$admin/v1/audit?key=order-17"
  $gateway audit --store $dir/store
  tail -f $dir/gateway.log

Serving; Ctrl-C ends it and removes $dir.
END
trap 'exit 0' INT TERM HUP # prints nothing: the terminal may be gone
if wait "$gateway_pid"; then status=0; else status=$?; fi
gateway_pid=''
fail "the gateway ended by itself with status $status"
