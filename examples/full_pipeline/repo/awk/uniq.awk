# Puts equal lines that follow each other together, with their number. No variables.
NR > 1 && $0 != last { print n, last; n = 0 }
{ last = $0; n++ }
END { if (NR > 0) print n, last }
