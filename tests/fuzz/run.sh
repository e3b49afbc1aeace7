#!/bin/sh
# run.sh grow|replay BUILD [TARGET...]: replays the corpora, or lets libFuzzer go on from them for FUZZ_SECONDS (60) for
# each target, as many side by side as there are cores. New inputs of interest stay in BUILD/corpus; an input that shows
# a fault is BUILD/found-TARGET-..., and becomes a file of tests/fuzz/corpus when the fault is mended.
set -eu
mode=$1 build=$2
shift 2
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls -- *.c | sed 's/\.c$//')

if [ "$mode" = replay ]; then
    for target in "$@"; do
        output=$("$build/tests/fuzz/$target" -runs=0 -artifact_prefix="$build/found-$target-" "tests/fuzz/corpus/$target" 2>&1) || {
            printf '  FAIL   fuzz corpus: %s\n%s\n' "$target" "$output"
            exit 1
        }
        # shellcheck disable=SC2012 # names are plain
        printf '  PASS   fuzz corpus: %s (%s inputs)\n' "$target" "$(ls "tests/fuzz/corpus/$target" | wc -l)"
    done
    exit 0
fi
mkdir -p "$build/corpus"
export build FUZZ_SECONDS="${FUZZ_SECONDS:-60}"
# shellcheck disable=SC2016 # the inner shell fills it in
printf '%s\n' "$@" | xargs -P "$(nproc)" -I TARGET sh -c '
    mkdir -p "$build/corpus/TARGET"
    words=tests/fuzz/TARGET.dict
    [ -e "$words" ] || words=
    "$build/tests/fuzz/TARGET" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 ${words:+-dict=$words} \
        -artifact_prefix="$build/found-TARGET-" "$build/corpus/TARGET" tests/fuzz/corpus/TARGET >"$build/TARGET.log" 2>&1 || {
        tail -n 40 "$build/TARGET.log"; echo "  FAIL   fuzz: TARGET ($build/TARGET.log)"; exit 1; }
    printf "  PASS   fuzz: %s (%s inputs)\n" TARGET "$(sed -n "s/^Done \([0-9]*\) runs.*/\1/p" "$build/TARGET.log")"'
