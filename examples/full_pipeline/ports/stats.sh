# Prints number, sum, least and greatest of the whole numbers in one field ($1) of the input's CSV.
stats() {
    _stats_count=0 _stats_sum=0 _stats_least=0 _stats_most=0
    while IFS= read -r _stats_line || [ -n "$_stats_line" ]; do
        _stats_value=$(csv_field "$_stats_line" "$1")
        _stats_sum=$((_stats_sum + _stats_value))
        if [ "$_stats_count" -eq 0 ] || [ "$_stats_value" -lt "$_stats_least" ]; then
            _stats_least=$_stats_value
        fi
        if [ "$_stats_count" -eq 0 ] || [ "$_stats_value" -gt "$_stats_most" ]; then
            _stats_most=$_stats_value
        fi
        _stats_count=$((_stats_count + 1))
    done
    [ "$_stats_count" -gt 0 ] || return 0
    printf 'n=%s sum=%s min=%s max=%s\n' "$_stats_count" "$(num_group "$_stats_sum")" \
        "$(num_group "$_stats_least")" "$(num_group "$_stats_most")"
}
