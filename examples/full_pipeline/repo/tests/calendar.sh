. tests/harness.sh
load dates calendar
same 'weekdays' '2024-02-29
2000-01-01
1900-03-01
2026-11-29
' '-f awk/calendar.awk' calendar
prints 'from a date as people write it' 'Sunday
' calendar_day "$(dates_iso 05/05/2024)"
finish
