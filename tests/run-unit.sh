#!/bin/sh
# Runs the unit test programs named as arguments; shows a program's output only when it fails.
# ThreadSanitizer stops on kernels that place memory where it does not expect it, hence setarch -R.
set -u
norandom=
setarch -R true 2>/dev/null && norandom="setarch -R"
passed=0 failed=0
for program in "$@"; do
    if output=$($norandom "$program" 2>&1 </dev/null); then
        count=$(printf '%s\n' "$output" | sed -n 's/.*\[  PASSED  \] \([0-9]*\) test(s).*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
        if [ "$count" -eq 0 ]; then
            printf '  FAIL   %s (it ran no test)\n%s\n' "$program" "$output"
            failed=$((failed + 1))
            continue
        fi
        printf '  PASS   %s (%s tests)\n' "$program" "$count"
        passed=$((passed + count))
    else
        printf '  FAIL   %s (status %s)\n%s\n' "$program" "$?" "$output"
        failed=$((failed + 1))
    fi
done
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
