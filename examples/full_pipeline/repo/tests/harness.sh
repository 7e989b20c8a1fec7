# Compares a ported module with the awk program that it comes from. Read by the tests; run from the root.
set -u
LC_ALL=C
export LC_ALL
failed=0

# load MODULE...: reads the modules, the last of which is the one under test.
load() {
    for module in "$@"; do
        if [ ! -f "sh/$module.sh" ]; then
            printf 'FAIL: sh/%s.sh does not exist\n' "$module"
            exit 1
        fi
        . "./sh/$module.sh"
    done
}

# same NAME INPUT AWK-ARGUMENTS COMMAND...: the command must print what awk does with these arguments.
same() {
    name=$1 input=$2 arguments=$3
    shift 3
    # The arguments are words.
    # shellcheck disable=SC2086
    wanted=$(printf '%s' "$input" | awk $arguments; printf .)
    got=$(printf '%s' "$input" | "$@"; printf .)
    compare
}

# prints NAME WANTED COMMAND...: the command must print this text.
prints() {
    name=$1 wanted=$2.
    input=
    shift 2
    got=$("$@"; printf .)
    compare
}

compare() {
    [ "$got" = "$wanted" ] && return
    failed=1
    printf 'FAIL: %s\n  input:  %s\n  wanted: %s\n  got:    %s\n' "$name" "$input" "${wanted%.}" "${got%.}"
}

# finish: ends the test.
finish() {
    [ "$failed" -eq 0 ] && printf 'ok\n'
    exit "$failed"
}
