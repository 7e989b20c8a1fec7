# Prints the words of a text ($1) in lines of at most a width ($2).
wrap_text() {
    _wrap_width=$2 _wrap_line=''
    set -f
    # The words of the text become the arguments.
    set -- $1
    set +f
    for _wrap_word in "$@"; do
        if [ -z "$_wrap_line" ]; then
            _wrap_line=$_wrap_word
        elif [ $((${#_wrap_line} + 1 + ${#_wrap_word})) -le "$_wrap_width" ]; then
            _wrap_line="$_wrap_line $_wrap_word"
        else
            printf '%s\n' "$_wrap_line"
            _wrap_line=$_wrap_word
        fi
    done
    printf '%s\n' "$_wrap_line"
}

# Prints the input with each line broken between words at a width ($1).
wrap() {
    while IFS= read -r _wrap_text || [ -n "$_wrap_text" ]; do
        wrap_text "$(trim_text "$_wrap_text")" "$1"
    done
}
