# Finds a field ($2) of a line ($1): its text is in _csv_text, the number of fields in _csv_at.
_csv_scan() {
    _csv_rest=$1 _csv_at=1 _csv_text='' _csv_quoted=no
    while [ -n "$_csv_rest" ]; do
        _csv_tail=${_csv_rest#?}
        _csv_char=${_csv_rest%"$_csv_tail"}
        case $_csv_quoted$_csv_rest in
        'yes"'*) _csv_quoted=no ;;
        'no"'*) _csv_quoted=yes ;;
        no,*) _csv_at=$((_csv_at + 1)) ;;
        *) [ "$_csv_at" -ne "$2" ] || _csv_text=$_csv_text$_csv_char ;;
        esac
        _csv_rest=$_csv_tail
    done
}

# Prints a field ($2) of a line ($1); the first is 1.
csv_field() {
    _csv_scan "$1" "$2"
    printf '%s' "$_csv_text"
}

# Prints how many fields a line ($1) has.
csv_count() {
    _csv_scan "$1" 1
    printf '%s' "$_csv_at"
}

# Prints one field ($1) of each line of the input.
csv() {
    while IFS= read -r _csv_line || [ -n "$_csv_line" ]; do
        csv_field "$_csv_line" "$1"
        printf '\n'
    done
}
