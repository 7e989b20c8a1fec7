# Prints how many lines, words and characters the input has.
count() {
    _count_lines=0 _count_words=0 _count_chars=0
    set -f
    while IFS= read -r _count_line || [ -n "$_count_line" ]; do
        # The words of the line become the arguments.
        set -- $_count_line
        _count_lines=$((_count_lines + 1))
        _count_words=$((_count_words + $#))
        _count_chars=$((_count_chars + ${#_count_line} + 1))
    done
    set +f
    printf '%s %s %s\n' "$_count_lines" "$_count_words" "$_count_chars"
}
