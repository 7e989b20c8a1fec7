# Prints equal lines of the input that follow each other once, after their number.
uniq() {
    _uniq_count=0 _uniq_last=''
    while IFS= read -r _uniq_line || [ -n "$_uniq_line" ]; do
        if [ "$_uniq_count" -gt 0 ] && [ "$_uniq_line" != "$_uniq_last" ]; then
            printf '%s %s\n' "$_uniq_count" "$_uniq_last"
            _uniq_count=0
        fi
        _uniq_last=$_uniq_line
        _uniq_count=$((_uniq_count + 1))
    done
    if [ "$_uniq_count" -gt 0 ]; then
        printf '%s %s\n' "$_uniq_count" "$_uniq_last"
    fi
}
