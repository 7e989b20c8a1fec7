# Prints a date ($1) as YYYY-MM-DD. Decision 4: the day comes first.
dates_iso() {
    _dates_year=${1##*/}
    _dates_month=${1#*/}
    printf '%s-%s-%s\n' "$_dates_year" "${_dates_month%%/*}" "${1%%/*}"
}

# Prints the date in each line of the input as YYYY-MM-DD.
dates() {
    while read -r _dates_first _dates_others || [ -n "$_dates_first" ]; do
        dates_iso "$_dates_first"
    done
}
