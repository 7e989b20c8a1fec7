. tests/harness.sh
load csv
same 'plain fields' 'a,b,c
d,,f
' '-v n=2 -f awk/csv.awk' csv 2
same 'a comma in quotes' 'a,"b,c",d
' '-v n=2 -f awk/csv.awk' csv 2
same 'doubled quotes' 'a,"say ""hi"" now",d
' '-v n=2 -f awk/csv.awk' csv 2
same 'the field after doubled quotes' 'a,"say ""hi"", now",d
' '-v n=3 -f awk/csv.awk' csv 3
prints 'the number of fields' '3' csv_count 'a,"b,c",d'
finish
