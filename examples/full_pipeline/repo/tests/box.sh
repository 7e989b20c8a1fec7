. tests/harness.sh
load chars trim wrap columns box
same 'a box' 'the quick brown fox
jumps
' '-v width=10 -f awk/box.awk' box 10
same 'an empty box' '' '-v width=4 -f awk/box.awk' box 4
finish
