# Prints the input with the weekday before each line, which begins with a date.
agenda() {
    while IFS= read -r _agenda_line || [ -n "$_agenda_line" ]; do
        columns_pad "$(calendar_day "${_agenda_line%% *}")" 10
        printf '%s\n' "$_agenda_line"
    done
}
