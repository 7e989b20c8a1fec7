. tests/harness.sh
load trim wrap
same 'a long line' 'the quick brown fox jumps over the lazy dog
' '-v width=10 -f awk/wrap.awk' wrap 10
same 'a word that is too long' 'a incomprehensibilities b
' '-v width=6 -f awk/wrap.awk' wrap 6
same 'an empty line and a star' '
* a
' '-v width=6 -f awk/wrap.awk' wrap 6
prints 'the function' 'a b
c
' wrap_text 'a b c' 3
finish
