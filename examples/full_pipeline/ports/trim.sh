_trim_blank=" $(printf '\t')"

# Prints a text ($1) without the blanks around it, and no newline.
trim_text() {
    _trim_text=${1#"${1%%[!"$_trim_blank"]*}"}
    printf '%s' "${_trim_text%"${_trim_text##*[!"$_trim_blank"]}"}"
}

# Prints each line of the input without the blanks around it.
trim() {
    while IFS= read -r _trim_line || [ -n "$_trim_line" ]; do
        trim_text "$_trim_line"
        printf '\n'
    done
}
