# Prints a text ($1), filled with blanks up to a width ($2), without a newline.
columns_pad() {
    printf '%s' "$1"
    chars_repeat ' ' $(($2 - ${#1}))
}

# Prints the greater number of each place of two lists of numbers ($1, $2).
_columns_widest() {
    old=$1
    for new in $2; do
        first=${old%% *}
        case $old in
        *' '*) old=${old#* } ;;
        *) old='' ;;
        esac
        if [ "${first:-0}" -gt "$new" ]; then
            new=$first
        fi
        printf '%s ' "$new"
    done
    printf '%s' "$old"
}

# Prints the lengths of its arguments.
_columns_lengths() {
    for word in "$@"; do
        printf '%s ' "${#word}"
    done
}

# Prints its arguments but the first below the widths in that ($1).
_columns_row() {
    left=$1
    shift
    while [ $# -gt 1 ]; do
        columns_pad "$1" "${left%% *}"
        printf '  '
        left=${left#* }
        shift
    done
    printf '%s\n' "${1-}"
}

# Prints the words of all lines of the input below each other.
columns() {
    all='' widths=''
    set -f
    while IFS= read -r line || [ -n "$line" ]; do
        # The words of the line become the arguments, here and below.
        set -- $line
        widths=$(_columns_widest "$widths" "$(_columns_lengths "$@")")
        all="$all$line
"
    done
    printf '%s' "$all" | while IFS= read -r line; do
        set -- $line
        _columns_row "$widths" "$@"
    done
    set +f
}
