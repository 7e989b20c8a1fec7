. tests/harness.sh
load chars columns
same 'columns' 'a bbb c
dddd e ff
g
' '-f awk/columns.awk' columns
same 'a star' '* a
bb c
' '-f awk/columns.awk' columns
prints 'the function' 'ab  ' columns_pad ab 4
finish
