# Prints a text ($1), filled with blanks up to a width ($2), without a newline.
columns_pad() {
    printf '%s' "$1"
    chars_repeat ' ' $(($2 - ${#1}))
}

# Prints the greater number of each place of two lists of numbers ($1, $2).
_columns_widest() {
    _columns_old=$1
    for _columns_new in $2; do
        _columns_first=${_columns_old%% *}
        case $_columns_old in
        *' '*) _columns_old=${_columns_old#* } ;;
        *) _columns_old='' ;;
        esac
        if [ "${_columns_first:-0}" -gt "$_columns_new" ]; then
            _columns_new=$_columns_first
        fi
        printf '%s ' "$_columns_new"
    done
    printf '%s' "$_columns_old"
}

# Prints the lengths of its arguments.
_columns_lengths() {
    for _columns_word in "$@"; do
        printf '%s ' "${#_columns_word}"
    done
}

# Prints its arguments but the first below the widths in that ($1).
_columns_row() {
    _columns_left=$1
    shift
    while [ $# -gt 1 ]; do
        columns_pad "$1" "${_columns_left%% *}"
        printf '  '
        _columns_left=${_columns_left#* }
        shift
    done
    printf '%s\n' "${1-}"
}

# Prints the words of all lines of the input below each other.
columns() {
    _columns_all='' _columns_widths=''
    set -f
    while IFS= read -r _columns_line || [ -n "$_columns_line" ]; do
        # The words of the line become the arguments, here and below.
        set -- $_columns_line
        _columns_widths=$(_columns_widest "$_columns_widths" "$(_columns_lengths "$@")")
        _columns_all="$_columns_all$_columns_line
"
    done
    printf '%s' "$_columns_all" | while IFS= read -r _columns_line; do
        set -- $_columns_line
        _columns_row "$_columns_widths" "$@"
    done
    set +f
}
