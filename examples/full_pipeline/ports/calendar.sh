# Prints a number ($1) without the zeros before it.
_calendar_plain() {
    _calendar_digits=${1#"${1%%[!0]*}"}
    printf '%s' "${_calendar_digits:-0}"
}

# Prints the weekday of a date ($1) that is written YYYY-MM-DD.
calendar_day() {
    _calendar_year=$(_calendar_plain "${1%%-*}")
    _calendar_month=${1#*-}
    _calendar_month=$(_calendar_plain "${_calendar_month%%-*}")
    _calendar_number=$(_calendar_plain "${1##*-}")
    if [ "$_calendar_month" -lt 3 ]; then
        _calendar_month=$((_calendar_month + 12))
        _calendar_year=$((_calendar_year - 1))
    fi
    _calendar_number=$((_calendar_number + 13 * (_calendar_month + 1) / 5 + _calendar_year))
    _calendar_number=$((_calendar_number + _calendar_year / 4 - _calendar_year / 100))
    case $(((_calendar_number + _calendar_year / 400) % 7)) in
    0) printf 'Saturday\n' ;;
    1) printf 'Sunday\n' ;;
    2) printf 'Monday\n' ;;
    3) printf 'Tuesday\n' ;;
    4) printf 'Wednesday\n' ;;
    5) printf 'Thursday\n' ;;
    6) printf 'Friday\n' ;;
    esac
}

# Prints the weekday of the date in each line of the input.
calendar() {
    while read -r _calendar_first _calendar_others || [ -n "$_calendar_first" ]; do
        calendar_day "$_calendar_first"
    done
}
