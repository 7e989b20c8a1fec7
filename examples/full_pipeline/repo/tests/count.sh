. tests/harness.sh
load count
same 'lines' 'one two
  three
' '-f awk/count.awk' count
same 'a star is a word, not the files here' '* ?
' '-f awk/count.awk' count
same 'nothing' '' '-f awk/count.awk' count
finish
