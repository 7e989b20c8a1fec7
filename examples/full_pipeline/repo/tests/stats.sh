. tests/harness.sh
load num csv stats
same 'numbers' 'a,1000,x
b,-20,y
c,234567,z
' '-v n=2 -f awk/stats.awk' stats 2
same 'one number' '7
' '-v n=1 -f awk/stats.awk' stats 1
same 'nothing' '' '-v n=1 -f awk/stats.awk' stats 1
finish
