#!/bin/sh
# Lets spin explore fencegate.pml in every interleaving: as it is, where every property has to hold, and with planted
# mistakes, each of which has to break the property named beside it.
#   check.sh              what CI runs: a minute or two, under 1 GB
#   check.sh long         four requests; every fault at once and two crashes: some minutes, up to 12 GB
#   check.sh wide         four requests, every fault, ten minutes, hashes in place of states: a search, no proof
#   check.sh story NAME   how a planted mistake does its harm, step by step
# Work goes to the folder named by MODEL_BUILD (build/model).
set -eu
model=$(cd "$(dirname "$0")" && pwd)/fencegate.pml
build=${MODEL_BUILD:-build/model}
mode=${1:-short}
case $mode in
short | long | wide | story) ;;
*) sed -n '4,8p' "$0" && exit 2 ;;
esac
mkdir -p "$build"
cd "$build"

# name | the property it has to break, a pattern | switches | the mistake
mutants() {
    cat <<'END'
raised-late|G3|-DMUTANT_RAISED_LATE|the gate hears of a raise after the verdicts are out
shown-late|G3|-DMUTANT_SHOWN_LATE|readers see a fence after the verdicts are out
no-last-look|G3|-DMUTANT_NO_LAST_LOOK|nobody looks once more before the first byte
not-taken-back|G3_late|-DMUTANT_NOT_TAKEN_BACK|the look is not repeated when the kernel took nothing
not-parked|G8_waiting|-DMUTANT_NOT_PARKED -DCRASHES=1|who must wait after its admission keeps an intent that may start
turn-not-written|G1_intent|-DMUTANT_TURN_NOT_WRITTEN|a call that waited goes out, and on disk it still waits
left-early|G4|-DMUTANT_LEFT_EARLY|the gate is left before the call has ended
verdict-outside|G[123]|-DMUTANT_VERDICT_OUTSIDE|the verdict is the look-up's, the writer only writes
verdict-outside-2|equal_reject|-DMUTANT_VERDICT_OUTSIDE -DMUTANT_ONLY_UPWARDS -DREJECT|so it is, but it writes no lower fence
second-sending|G[57]|-DMUTANT_SECOND_SENDING|a dead connection is tried again after bytes were sent
no-hear-of|G3|-DMUTANT_NO_HEAR_OF|a fence read between commit and raise is not told to the gate
trust-notice|G3_overtaken|-DMUTANT_TRUST_NOTICE|who has taken its notice of being too late is let off
read-before-join|G3|-DMUTANT_READ_BEFORE_JOIN|the fence is read before the gate is joined
lost-wake|deadlock|-DMUTANT_LOST_WAKE|leaving the gate wakes nobody
reset-no-order|G4|-DRESETS -DMUTANT_RESET_FORGETS_FLIGHT|after a reset calls in flight keep their tokens' order
reset-no-epoch|G3_start_after|-DRESETS -DMUTANT_RESET_KEEPS_EPOCH|a reset lets calls go on that the old fence let through
no-sync|G1_fence|-DMUTANT_NO_SYNC|the commit does not sync
no-sync-crash|G2|-DMUTANT_NO_SYNC -DCRASHES=1|the same, with a power cut
no-intent|G1_intent|-DMUTANT_NO_INTENT|no intent is written
two-transactions|G8|-DMUTANT_TWO_TRANSACTIONS -DCRASHES=1|the intent goes before the outcome comes
outcome-given-up|G8|-DMUTANT_OUTCOME_GIVEN_UP -DFAILING|an outcome whose commit failed is not held
died-not-sent|G7|-DMUTANT_DIED_NOT_SENT|a connection that died is taken for not sent
END
}

# make_pan folder compiler-switches model-switches...
make_pan() {
    folder=$1 compiler=$2
    shift 2
    rm -rf "$folder" && mkdir -p "$folder" && cp "$model" "$folder/"
    # Partial order reduction finds nothing to leave out here: every step touches what all share.
    (cd "$folder" && spin -a "$@" fencegate.pml >spin.out && gcc -w $compiler -DSAFETY -DNOREDUCE -o pan pan.c) || {
        cat "$folder/spin.out"
        echo "check.sh: the model does not build" >&2
        exit 1
    }
}

broken() { # what pan found wrong; nothing if it found nothing
    sed -n 's/^pan:[0-9]*: \(.*\) (at depth [0-9]*)$/\1/p' "$1" | sed 's/^assertion violated *!(\(.*\))$/\1/; s/^invalid end state$/deadlock/'
}

# Every state was seen: no limit of depth, memory or time, no hashing in place of states.
is_whole() {
    grep -q '^Full statespace search' "$1" && grep -q 'errors: 0$' "$1" && grep -q '^pan: elapsed time' "$1" &&
        ! grep -qiE 'not completed|too small|out of memory|reached -DMEMLIM|truncated|interrupted|aborting' "$1"
}

show_story() {
    (cd "$1" && ./pan -r 2>/dev/null) | sed -n -E '/^ *(request|operator|writer|store_open|kernel|crash|start)( |:|$)/p' |
        sed 's/^ */      /'
}

failed=0
hash=24 # the hash table's size, as a power of two
# holds name megabytes switches...
holds() {
    name=$1 memory=$2
    shift 2
    make_pan "$name" "-O2 -DMEMLIM=$memory" "$@"
    (cd "$name" && ./pan -m100000 -w"$hash" >pan.out 2>&1) || true
    states=$(awk '/ states, stored/ { print $1; exit }' "$name/pan.out")
    depth=$(sed -n 's/.*depth reached \([0-9]*\),.*/\1/p' "$name/pan.out")
    took=$(sed -n 's/^pan: elapsed time \(.*\) seconds/\1/p' "$name/pan.out")
    if is_whole "$name/pan.out"; then
        printf '  MODEL  %-18s holds: %s states, depth %s, %s s   %s\n' "$name" "$states" "$depth" "$took" "$*"
        return
    fi
    failed=$((failed + 1))
    property=$(broken "$name/pan.out")
    if [ -n "$property" ]; then
        printf '  FAIL   %-18s %s is broken:   %s\n' "$name" "$property" "$*"
        show_story "$name"
    else
        printf '  FAIL   %-18s not all states were seen: a limit was reached   %s\n' "$name" "$*"
        grep -iE 'not completed|too small|memory|truncated|interrupted|errors:' "$name/pan.out" || cat "$name/pan.out"
    fi
}

# breaks name property switches mistake
breaks() {
    name=$1 property=$2 switches=$3 mistake=$4
    # shellcheck disable=SC2086 # switches are words
    make_pan "mutant-$name" "-O0 -DMEMLIM=1000" $switches # found in no time: the compiler's is what counts
    (cd "mutant-$name" && ./pan -m100000 -w22 >pan.out 2>&1) || true
    found=$(broken "mutant-$name/pan.out")
    if printf '%s\n' "$found" | grep -qE "^$property"; then
        printf '  MODEL  %-18s breaks %s: %s\n' "$name" "$found" "$mistake"
    else
        printf '  FAIL   %-18s has to break %s, broke %s: %s\n' "$name" "$property" "${found:-nothing}" "$mistake"
        failed=$((failed + 1))
    fi
}

# A model that never gets to a place proves nothing about it.
check_events() {
    never=$(cat "$@" | awk '$1 == "event" { n[$2] += $3 } END { for (e in n) if (n[e] == 0) print e }' | sort)
    some=$(cat "$@" | awk '$1 == "event" { n[$2] += $3 } END { for (e in n) if (n[e] > 0) c++; print c + 0 }')
    if [ -n "$never" ] || [ "$some" -eq 0 ]; then
        printf '  FAIL   never happened in any run:' && printf ' %s' $never && echo
        failed=$((failed + 1))
    else
        printf '  MODEL  each of %s things that matter happened\n' "$some"
    fi
}

short() {
    holds order 900
    holds two-keys 900 -DKEYS=2
    holds abort-resets 900 -DABORT -DRESETS -DFAILING
    holds failing-timers 900 -DFAILING -DTIMERS
    holds reject 900 -DREJECT -DTIMERS
    holds crash 900 -DCRASHES=1
    holds dying 900 -DN=2 -DCRASHES=2 -DDYING -DFAILING -DRESETS -DTIMERS -DABORT -DREJECT
    check_events order/pan.out two-keys/pan.out abort-resets/pan.out failing-timers/pan.out reject/pan.out crash/pan.out dying/pan.out
    mutants >mutants
    while IFS='|' read -r name property switches mistake; do
        breaks "$name" "$property" "$switches" "$mistake"
    done <mutants
}

case $mode in
short) short ;;
long)
    short
    hash=26
    holds failing-reject 9000 -DFAILING -DTIMERS -DREJECT
    holds crash-failing 9000 -DCRASHES=1 -DFAILING -DRESETS
    holds everything 9000 -DCRASHES=2 -DDYING -DFAILING -DRESETS -DTIMERS -DABORT -DREJECT
    holds four 16000 -DN=4
    holds four-two-keys 16000 -DN=4 -DKEYS=2
    ;;
wide)
    make_pan wide "-O2 -DBITSTATE" -DN=4 -DCRASHES=1 -DFAILING -DRESETS -DTIMERS -DABORT
    (cd wide && ./pan -m100000 -w33 -k3 -Q"${MODEL_MINUTES:-10}" >pan.out 2>&1) || true
    found=$(broken wide/pan.out)
    if [ -n "$found" ] || ! grep -q 'errors: 0$' wide/pan.out; then
        printf '  FAIL   wide: %s\n' "${found:-see $build/wide/pan.out}"
        show_story wide
        failed=1
    else
        states=$(awk '/ states, stored/ { print $1; exit }' wide/pan.out)
        printf '  MODEL  wide, NOT every state: nothing found in %s states\n' "$states"
    fi
    ;;
story)
    switches=$(mutants | awk -F'|' -v name="${2-}" '$1 == name { print $3 }')
    [ -n "$switches" ] || { mutants | cut -d'|' -f1,4 && exit 2; }
    # shellcheck disable=SC2086
    make_pan story "-O2 -DREACH" $switches
    (cd story && ./pan -i -m200 >pan.out 2>&1) || true
    show_story story
    printf '      %s\n' "$(broken story/pan.out | tail -n 1)"
    exit 0
    ;;
esac
[ "$failed" -eq 0 ] || { echo "check.sh: the model failed" >&2 && exit 1; }
