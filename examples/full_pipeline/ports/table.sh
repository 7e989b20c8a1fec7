# Prints the lines of CSV in the input as a table with columns of a width ($1).
table() {
    while IFS= read -r _table_line || [ -n "$_table_line" ]; do
        _table_count=$(csv_count "$_table_line")
        _table_at=1
        while [ "$_table_at" -lt "$_table_count" ]; do
            columns_pad "$(csv_field "$_table_line" "$_table_at")" "$1"
            printf ' | '
            _table_at=$((_table_at + 1))
        done
        csv_field "$_table_line" "$_table_count"
        printf '\n'
    done
}
