. tests/harness.sh
load chars columns dates calendar agenda
same 'lines' '2024-02-29 leap day
2026-11-29 today
' '-f awk/agenda.awk' agenda
finish
