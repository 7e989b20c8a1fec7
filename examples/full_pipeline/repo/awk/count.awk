# Counts lines, words and characters. No variables.
{ words += NF; chars += length($0) + 1 }
END { print NR, words + 0, chars + 0 }
