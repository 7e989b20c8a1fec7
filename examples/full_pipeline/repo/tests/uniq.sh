. tests/harness.sh
load uniq
same 'runs of lines' 'a
a
b
a
' '-f awk/uniq.awk' uniq
same 'empty lines' '

x
' '-f awk/uniq.awk' uniq
same 'nothing' '' '-f awk/uniq.awk' uniq
finish
