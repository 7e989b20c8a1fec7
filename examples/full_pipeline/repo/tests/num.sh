. tests/harness.sh
load num
same 'numbers' '1
12
123
1234
1234567
' '-f awk/num.awk' num
same 'negative numbers' '-123
-1234
' '-f awk/num.awk' num
prints 'the function' '12,345' num_group 12345
finish
