# Prints the input with so many blanks ($1) before each line that is not empty.
indent() {
    while IFS= read -r _indent_line || [ -n "$_indent_line" ]; do
        [ -z "$_indent_line" ] || chars_repeat ' ' "$1"
        printf '%s\n' "$_indent_line"
    done
}
