. tests/harness.sh
load chars columns csv table
same 'a table' 'name,size
"a, b",12
"say ""hi""",3
' '-v width=9 -f awk/table.awk' table 9
same 'one field' 'x
' '-v width=3 -f awk/table.awk' table 3
finish
