. tests/harness.sh
load chars
same 'three times' 'ab
c' '-v n=3 -f awk/chars.awk' chars 3
same 'not at all' 'ab
' '-v n=0 -f awk/chars.awk' chars 0
same 'a backslash and a percent sign' 'a\n%s
' '-v n=2 -f awk/chars.awk' chars 2
prints 'the function' '----' chars_repeat - 4
finish
