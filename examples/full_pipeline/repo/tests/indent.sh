. tests/harness.sh
load chars indent
same 'four blanks' 'a

  b
' '-v n=4 -f awk/indent.awk' indent 4
same 'none' 'a
' '-v n=0 -f awk/indent.awk' indent 0
finish
