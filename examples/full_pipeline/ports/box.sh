# Prints the upper or lower edge of a box around text of a width ($1).
_box_edge() {
    printf '+'
    chars_repeat - $(($1 + 2))
    printf '+\n'
}

# Prints the input, wrapped at a width ($1), with a box around it.
box() {
    _box_edge "$1"
    wrap "$1" | while IFS= read -r _box_line; do
        printf '| '
        columns_pad "$_box_line" "$1"
        printf ' |\n'
    done
    _box_edge "$1"
}
