. tests/harness.sh
load dates
prints 'a date' '2024-05-05
' dates_iso 05/05/2024
prints 'another' '1999-12-12
' dates_iso 12/12/1999
finish
