# Prints a text ($1) so many times ($2), without a newline.
chars_repeat() {
    _chars_left=$2
    while [ "$_chars_left" -gt 0 ]; do
        printf '%s' "$1"
        _chars_left=$((_chars_left - 1))
    done
}

# Prints each line of the input so many times ($1) in a row.
chars() {
    while IFS= read -r _chars_line || [ -n "$_chars_line" ]; do
        chars_repeat "$_chars_line" "$1"
        printf '\n'
    done
}
