. tests/harness.sh
load trim
same 'blanks around' '  two words  	
	tab
none
' '-f awk/trim.awk' trim
same 'nothing but blanks' '   

' '-f awk/trim.awk' trim
prints 'the function' 'a  b' trim_text '  a  b '
finish
